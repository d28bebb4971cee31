"""``xlnet evaluate``: the held-out loss of a pretrained model, beside what counting reaches on the same targets."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from xlnet.cli.corpus import run_prepare
from xlnet.cli.finetune import evaluate_task
from xlnet.cli.progress import say
from xlnet.errors import ConfigurationError
from xlnet.float32 import Float32Products
from xlnet.float32 import float32_products as chosen_products
from xlnet.model import XLNetLMHeadModel
from xlnet.pretraining.baselines import CountingModel, baseline_loss
from xlnet.pretraining.corpus.manifest import MANIFEST_NAME
from xlnet.pretraining.corpus.prepare import PrepareConfig
from xlnet.pretraining.corpus.token_corpus import TokenCorpus
from xlnet.pretraining.evaluate import held_out_loss
from xlnet.pretraining.fixed_batches import evaluation_batches
from xlnet.pretraining.pretrain import check_shapes
from xlnet.pretraining.stream_config import StreamConfig
from xlnet.tasks.fine_tuned import is_fine_tuned
from xlnet.text import XLNetTokenizer
from xlnet.training.config import Precision
from xlnet.training.device import choose_device


def evaluate(
    inputs: list[str],
    *,
    model: str,
    task: str | None = None,
    split: str = "",
    baseline: str | None = None,
    count: int | None = None,
    precision: Precision = "float32",
    float32_products: Float32Products = "auto",
    device: str = "auto",
    text_column: str | None = None,
    pair_column: str | None = None,
    label_column: str | None = None,
    stream: StreamConfig = StreamConfig(seq_len=128, reuse_len=64),
) -> None:
    """Measure a model on held-out data; prints JSON.

    A fine-tuned model is measured by the metrics of its task, a pretrained one by the permutation language-model loss
    on text, always on the same targets.

    Args:
        inputs: fine-tuned: one folder or file of labelled data; pretrained: text files, or one corpus folder (its
            held-out split is used)
        model: folder of the model and its tokenizer
        task: fine-tuned: another benchmark with the same labels, such as ax for a model of mnli
        split: fine-tuned: of a folder; by default dev
        baseline: corpus folder whose training split the unigram and bigram baselines count
        count: batches at most; by default the whole text once
        precision: fine-tuned: arithmetic; bfloat16 is faster on some machines (a warning says where it is slower)
        float32_products: library for float32 matrices on a CPU: auto, default or onednn
        device: auto, cpu, cuda, cuda:N or mps
        text_column: fine-tuned: name of the text's column, where it is called otherwise than in training
        pair_column: fine-tuned: name of the second text's column
        label_column: fine-tuned: name of the label's column
        stream: how tokens become sequences and targets
    """
    if is_fine_tuned(model):
        with chosen_products(float32_products):
            found = evaluate_task(
                inputs, model=model, task=task, split=split, precision=precision, device=device,
                text_column=text_column, pair_column=pair_column, label_column=label_column,
            )  # fmt: skip
        print(json.dumps(found, indent=2))
        return
    if task is not None or split or precision != "float32" or text_column or pair_column or label_column:
        raise ConfigurationError(
            f"--task, --split, --precision and names of columns are for fine-tuned models, and {model} is none."
        )
    if count is not None and count < 1:
        raise ConfigurationError(f"--count {count} must be at least 1; leave it out for the whole text.")
    counted_text = None if baseline is None else TokenCorpus.open(baseline, "train")
    tokenizer = XLNetTokenizer.from_pretrained(model)
    if counted_text is not None:
        counted_text.check_tokenizer(tokenizer)
    ready = (Path(inputs[0]) / MANIFEST_NAME).is_file()
    if ready:
        TokenCorpus.open(inputs[0], "valid").check_tokenizer(tokenizer)
    network = XLNetLMHeadModel.from_pretrained(model, reuse_len=stream.reuse_len).to(choose_device(device))
    check_shapes(network.config, stream)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(inputs[0])
        split = "valid"
        if not ready:
            folder, split = Path(scratch) / "corpus", "train"
            run_prepare(inputs, tokenizer, folder, PrepareConfig(valid_fraction=0.0, deduplicate=False))
        corpus = TokenCorpus.open(folder, split)
        batches = evaluation_batches(corpus, stream, tokenizer.starts_word, count)
        with chosen_products(float32_products, network.device):
            metrics = held_out_loss(network, batches, network.config)
        if counted_text is not None:
            say("counting unigrams and bigrams")
            counting = CountingModel(counted_text, tokenizer.vocab_size)
            counted = baseline_loss(counting, batches)
            metrics |= {
                "unigram_loss": counted.unigram,
                "bigram_loss": counted.bigram,
                "bigram_always_visible_loss": counted.bigram_always_visible,
                "targets": counted.targets,
            }
    print(json.dumps(metrics, indent=2))
