"""Pretraining, in the order of the paper.

Read in this order: corpus (text to tokens), lanes, segments, spans, permutation, sequence, stream, then objective (the
paper on one page), pretrain, evaluate, baselines.
"""
