"""One training loop for pretraining and fine-tuning; knows nothing of XLNet."""
