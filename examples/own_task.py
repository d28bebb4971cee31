"""A task of one's own: whether a sentence holds a question that expects yes or no.

    python examples/own_task.py MODEL_FOLDER OUTPUT_FOLDER

A task on texts needs nothing but its labels. Anything else is a method: here :meth:`features` shows the model the end
of the text twice, and :meth:`metrics` adds a number of our own.
"""

import sys
from dataclasses import dataclass, replace

from xlnet.tasks.config import FineTuneConfig
from xlnet.tasks.families.classification import TextClassification
from xlnet.tasks.families.text import TextExample
from xlnet.tasks.finetune import TaskData, finetune
from xlnet.tasks.starting import start_model
from xlnet.text import XLNetTokenizer


@dataclass(frozen=True, kw_only=True)
class YesNoQuestion(TextClassification):
    family = "yes_no_question"
    label_names: tuple[str, ...] = ("no", "yes")

    def features(self, examples, tokenizer, *, training):
        tail = [replace(example, pair=" ".join(example.text.split()[-3:])) for example in examples]
        return super().features(tail, tokenizer, training=training)

    def metrics(self, examples, predictions):
        said_yes = sum(prediction["label"] == "yes" for prediction in predictions)
        return {**super().metrics(examples, predictions), "said_yes": said_yes / len(examples)}


def main(model_folder: str, output: str) -> dict[str, float]:
    rows = [("Is it raining?", "yes"), ("It rains.", "no"), ("Do you like tea?", "yes"), ("Where is it?", "no")] * 8
    examples = [TextExample(str(i), text, label=label) for i, (text, label) in enumerate(rows)]
    task = YesNoQuestion(name="yes-no", max_length=32)
    tokenizer = XLNetTokenizer.from_pretrained(model_folder)
    config = FineTuneConfig(epochs=3, batch_size=8, learning_rate=1e-3)
    tuned = finetune(
        start_model(model_folder, task), tokenizer, task, TaskData(examples, {"dev": examples}), config, output
    )
    print(tuned.predict(["Can you hear me?", "I hear you."]))
    return dict(tuned.metrics)


if __name__ == "__main__":
    print(main(*sys.argv[1:3]))
