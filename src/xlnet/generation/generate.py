"""Left-to-right text from a prompt: cached, batched, streamed; sampled, greedy, or by beam search."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from torch import Tensor

from xlnet.errors import ConfigurationError, InputError, known_keys
from xlnet.generation.beam import BeamConfig, beam_search
from xlnet.generation.engine import Conditionals, Rows, conditionals, evaluating
from xlnet.generation.methods import Run, check_method, drive
from xlnet.generation.pieces import check_vocabulary, no_text, spaced
from xlnet.generation.plan import CONTEXT_ORDER, FillPlan
from xlnet.generation.protocols import Tokenizer
from xlnet.generation.sampling import RandomStream, SamplingConfig, permitted
from xlnet.generation.stopping import Continuation
from xlnet.model.few_rows import Products
from xlnet.model.language_model import XLNetLMHeadModel

Stream = Callable[[int, str], None]


@known_keys
@dataclass(frozen=True, kw_only=True)
class GenerationConfig:
    """What to generate.

    Args:
        max_new_tokens: pieces after the prompt, at most.
        num_beams: 1 draws or takes the best token each time; more runs a beam search (no sampling: of its settings only
            ``banned`` and ``allowed`` apply).
        length_penalty: of the beam search; see :class:`~xlnet.generation.beam.BeamConfig`.
        stop: the text ends before the first of these strings.
        stop_ids: the text ends before one of these ids; None is the tokenizer's ``<eod>``.
        method: ``sequential``, ``speculative`` or ``one_pass``: same output law, fewer calls.
        k: tokens drafted at once by the last two.
        context: how prompt tokens see each other. ``bidirectional`` (default): as in pretraining, where tokens that are
            not predicted all see each other and targets come after; ``left_to_right``: strictly causal, so that text
            and its continuation have one joint probability whatever the border.
        window: cached positions that a token may look back over; None is all. Bounds memory and cost per token for any
            length: prompts then run one by one, and what of a prompt does not fit is read in segments before.
        batch_size: prompts side by side.
        products: matrix products of a step: ``auto``, ``torch`` or ``compiled``; see :mod:`xlnet.model.few_rows`.
        cached: False encodes everything again for each token: slow, the same text.
    """

    max_new_tokens: int = 64
    num_beams: int = 1
    length_penalty: float = 0.0
    stop: tuple[str, ...] = ()
    stop_ids: tuple[int, ...] | None = None
    method: str = "sequential"
    k: int = 4
    context: str = "bidirectional"
    window: int | None = None
    batch_size: int = 8
    products: Products = "auto"
    cached: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "stop", (self.stop,) if isinstance(self.stop, str) else tuple(self.stop))
        check_method(self.method, self.k)
        BeamConfig(self.num_beams, self.length_penalty)
        for name in ("max_new_tokens", "batch_size"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name}={getattr(self, name)} must be at least 1.")
        if self.window is not None and self.window < 1:
            raise ConfigurationError(f"window={self.window} must be at least 1; None looks back over everything.")
        if "" in self.stop:
            raise ConfigurationError("stop holds an empty string, which every text contains.")
        if self.num_beams > 1 and self.method != "sequential":
            raise ConfigurationError(f"num_beams={self.num_beams} goes with method='sequential' only.")


@dataclass(frozen=True)
class Generation:
    """A prompt and its continuation.

    Attributes:
        prompt: as given.
        text: the continuation, with the space in front where there is one (but not where the prompt ends in white
            space); up to the stop string.
        ids: its pieces; a stop id is not among them.
        log_probs: of each piece under the model (temperature 1, nothing banned), in nats.
        finish_reason: ``length``, ``stop`` (a stop string) or ``end`` (a stop id).
        calls: calls of the model.
        others: with beams, the other hypotheses, best first.
    """

    prompt: str
    text: str
    ids: tuple[int, ...] = field(repr=False)
    log_probs: tuple[float, ...] = field(repr=False)
    finish_reason: str
    calls: int
    others: tuple[Generation, ...] = field(default=(), repr=False)

    @property
    def full_text(self) -> str:
        """Prompt and continuation."""
        return self.prompt + self.text

    @property
    def log_prob(self) -> float:
        """Of the continuation, in nats."""
        return math.fsum(self.log_probs)


def generate(
    model: XLNetLMHeadModel,
    tokenizer: Tokenizer,
    prompts: Sequence[str],
    *,
    config: GenerationConfig | None = None,
    sampling: SamplingConfig | None = None,
    stream: Stream | None = None,
    first_number: int = 0,
) -> list[Generation]:
    """Continue each prompt. Nothing is put in front of it; an empty prompt starts from nothing.

    Behind a prompt that ends in white space comes a piece with a space in front, where one may be chosen.

    Args:
        model: a language model; runs in evaluation mode.
        tokenizer: of that model. Special ids other than the stop ids are never chosen.
        prompts: any number, of unlike lengths.
        config: lengths, stops, beams, method.
        sampling: by default temperature 1 over the whole distribution.
        stream: called with (prompt number, new text) as text is decided.
        first_number: of the first prompt: number n draws from the stream (seed, n), so prompts that are handed over
            in several calls get what they would get in one.

    Raises:
        InputError: prompts given as one string.
        ConfigurationError: settings out of range, or of sampling where beams do not sample.
        CheckpointError: a tokenizer with more pieces than the model knows.
    """
    config, sampling = config or GenerationConfig(), sampling or SamplingConfig()
    if isinstance(prompts, str):
        raise InputError("prompts is one string; give a list of prompts, [prompt] for a single one.")
    vocab_size = model.config.vocab_size
    check_vocabulary(tokenizer, vocab_size)
    if config.num_beams > 1:
        check_beam_sampling(sampling, config.num_beams)
    stop_ids = (tokenizer.eod_id,) if config.stop_ids is None else config.stop_ids
    mask = permitted(sampling, vocab_size, [i for i in no_text(tokenizer, vocab_size) if i not in stop_ids])
    encoded = [list(tokenizer.encode(text, special_tokens=False).input_ids) if text else [] for text in prompts]
    results: list[Generation] = []
    side_by_side = config.batch_size if config.window is None else 1
    with evaluating(model):
        for start in range(0, len(prompts), side_by_side):
            chosen = range(start, min(start + side_by_side, len(prompts)))
            texts = [
                Continuation(tokenizer, prompts[i], encoded[i], config.stop, stop_ids, first_number + i, stream)
                for i in chosen
            ]
            if config.num_beams > 1:
                results.extend(_by_beams(model, text, config, mask) for text in texts)
            else:
                results.extend(_by_choice(model, texts, config, sampling, mask))
    return results


def check_beam_sampling(sampling: SamplingConfig, num_beams: int) -> None:
    """Refuse settings that a beam search would pass over; the greedy choice is what it does anyway.

    Raises:
        ConfigurationError: naming the setting.
    """
    usual = SamplingConfig()
    for name in ("temperature", "top_k", "top_p", "repetition_penalty", "seed"):
        value = getattr(sampling, name)
        if value != getattr(usual, name) and not (name == "temperature" and value is None):
            raise ConfigurationError(
                f"sampling.{name}={value} has no effect with num_beams={num_beams}: a beam search takes the most "
                "probable texts and draws none. Leave it out, or use num_beams=1."
            )


def _plan(text: Continuation, config: GenerationConfig, mask: Tensor | None, vocab_size: int) -> FillPlan:
    length = len(text.prompt_ids)
    places = tuple(range(length, length + config.max_new_tokens))
    read = range(_read_before(text, config))
    plan = FillPlan(tuple(text.prompt_ids), places, frozenset(read), context=config.context)
    if not text.after_space:
        return plan
    first = spaced(text.tokenizer, vocab_size)
    first[[i for i in text.stop_ids if 0 <= i < vocab_size]] = True  # The text may end here as well.
    # Where the user allows no piece with a space, or the vocabulary has none, there is nothing to ask for.
    return replace(plan, allowed={length: first}) if bool((first if mask is None else first & mask).any()) else plan


def _read_before(text: Continuation, config: GenerationConfig) -> int:
    """How many tokens of a prompt do not fit the window and are read before."""
    return 0 if config.window is None else max(0, len(text.prompt_ids) - config.window)


def _read(engine: Conditionals, text: Continuation, config: GenerationConfig) -> None:
    """Read the front of a long prompt into the cache, a window at a time, as segments with memory are read."""
    count, window = _read_before(text, config), config.window or 1
    segments = math.ceil(count / window)
    for number in range(segments):
        part = range(number * window, min(count, (number + 1) * window))
        if config.context == "left_to_right":
            orders = [CONTEXT_ORDER + 1 + place - len(text.prompt_ids) for place in part]
        else:
            orders = [CONTEXT_ORDER - segments + number] * len(part)
        content = [(place, order, text.prompt_ids[place]) for place, order in zip(part, orders, strict=True)]
        engine.ask([Rows(content)])


def _by_choice(
    model: XLNetLMHeadModel,
    texts: list[Continuation],
    config: GenerationConfig,
    sampling: SamplingConfig,
    mask: Tensor | None,
) -> list[Generation]:
    """Draw or take the best, all prompts side by side."""
    runs = [
        Run(
            _plan(text, config, mask, model.config.vocab_size),
            sampling,
            RandomStream(sampling.seed, text.number),
            mask,
            text.should_stop,
        )
        for text in texts
    ]
    engine = conditionals(model, len(runs), window=config.window, cached=config.cached, products=config.products)
    if config.window is not None:
        _read(engine, texts[0], config)

    def show() -> None:
        for text, run in zip(texts, runs, strict=True):
            text.show(run.decided, final=False)

    drive(runs, engine, method=config.method, k=config.k, after_call=show if texts[0].stream else None)
    results = []
    for text, run in zip(texts, runs, strict=True):
        text.show(run.decided, final=True)
        results.append(_generation(text, run.decided, run.log_probs, run.calls))
    return results


def _by_beams(model: XLNetLMHeadModel, text: Continuation, config: GenerationConfig, mask: Tensor | None) -> Generation:
    engine = conditionals(model, 1, window=config.window, cached=config.cached, products=config.products)
    if config.window is not None:
        _read(engine, text, config)
    calls = 0

    def count(number: int) -> None:
        nonlocal calls
        calls = number

    found = beam_search(
        engine,
        _plan(text, config, mask, model.config.vocab_size),
        BeamConfig(config.num_beams, config.length_penalty),
        mask=mask,
        ends=lambda ids: text.ending(ids) is not None,
        after_step=count,
    )
    best, *others = [_generation(text, list(one.ids), list(one.log_probs), calls) for one in found]
    text.show(list(found[0].ids), final=True)
    return Generation(best.prompt, best.text, best.ids, best.log_probs, best.finish_reason, best.calls, tuple(others))


def _generation(text: Continuation, ids: list[int], log_probs: list[float], calls: int) -> Generation:
    reason = text.ending(ids) or "length"
    shown = ids[:-1] if reason == "end" else ids
    return Generation(text.prompt, text.text(ids), tuple(shown), tuple(log_probs[: len(shown)]), reason, calls)
