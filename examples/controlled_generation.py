"""Steering what is written: fixed words, a prefix and a suffix at once, and an attribute judged by a classifier.

    python examples/controlled_generation.py MODEL_FOLDER [--classifier CLASSIFIER_FOLDER --label 1]

Three ways, from exact to guided:

1. Given words at given places, or a given end, are blanks to fill around: the model decides the rest jointly.
2. An attribute as a prompt is plain conditioning: put it in front, generate behind it.
3. A classifier picks among samples. With n samples and weights p(label | text), drawing one sample by weight is
   importance resampling: as n grows the law tends to p(text) p(label | text) / p(label), without touching the model.
"""

from __future__ import annotations

import argparse

import torch

from xlnet.generation import GenerationConfig, SamplingConfig, fill, generate
from xlnet.model import XLNetForSequenceClassification, XLNetLMHeadModel
from xlnet.text import XLNetTokenizer


def main() -> None:
    """Run the three ways and print what they write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--classifier")
    parser.add_argument("--label", type=int, default=1)
    parser.add_argument("--samples", type=int, default=16)
    arguments = parser.parse_args()
    model = XLNetLMHeadModel.from_pretrained(arguments.model)
    tokenizer = XLNetTokenizer.from_pretrained(arguments.model)
    sampling = SamplingConfig(top_p=0.9, seed=1)

    between = fill(
        model, tokenizer, "It was late when <mask:8> and nobody spoke.", sampling=sampling, method="one_pass"
    )
    print("a prefix and a suffix:", between.text)
    (prompted,) = generate(model, tokenizer, ["A cheerful letter. My dear friend,"], sampling=sampling)
    print("a prompted attribute: ", prompted.full_text)
    if arguments.classifier is None:
        return
    judge = XLNetForSequenceClassification.from_pretrained(arguments.classifier).eval()
    judge_tokenizer = XLNetTokenizer.from_pretrained(arguments.classifier)
    drafts = generate(
        model,
        tokenizer,
        ["The evening"] * arguments.samples,
        config=GenerationConfig(max_new_tokens=30),
        sampling=sampling,
    )
    with torch.inference_mode():
        weights = judge(**judge_tokenizer([draft.full_text for draft in drafts])).logits.softmax(-1)[:, arguments.label]
    chosen = int(torch.multinomial(weights, 1, generator=torch.Generator().manual_seed(1)))
    print(f"guided by a classifier (p = {float(weights[chosen]):.2f}):", drafts[chosen].full_text)


if __name__ == "__main__":
    main()
