"""Questions on a passage (SQuAD 1.1 and 2.0): reading, windows, search for the answer, official files and scores."""
