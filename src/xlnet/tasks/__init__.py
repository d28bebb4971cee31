"""Fine-tuning and evaluation: a task is examples + features + head + loss + predictions + metrics (``contract.py``)."""
