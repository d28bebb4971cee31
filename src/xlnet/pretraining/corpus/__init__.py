"""From text files to memory-mapped tokens.

Read in this order: sources (files), readers (formats), sentences, deduplicate, holdout, pieces and workers (encoding on
all cores), shards and manifest (the result), prepare (the whole), token_corpus (reading it back).
"""
