"""Kinds of tasks: classification, several labels, regression, choices, tokens, ranking."""
