"""Any batch can be had again exactly: saved positions, background workers, dead workers."""

from __future__ import annotations

import dataclasses
import itertools
import json
import multiprocessing
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stream_helpers import (
    SMALL,
    SPECIAL_IDS,
    configs,
    corpus_of,
    equal,
    restarted,
    stream_of,
    wrongly_labelled,
)

from xlnet.errors import InputError, MachineError
from xlnet.pretraining.corpus.token_corpus import TokenCorpus
from xlnet.pretraining.stream_config import StreamConfig


@settings(max_examples=15, deadline=None)
@given(configs(), st.integers(0, 40))
def test_a_restored_stream_gives_the_exact_next_batches(config: StreamConfig, place: int) -> None:
    stream, again, _ = restarted(config, place)
    assert again.state() == stream.state() and again.epoch == stream.epoch
    assert all(equal(next(stream), next(again)) for _ in range(5))


def test_order_of_micro_batches_and_epochs() -> None:
    stream = stream_of(corpus_of(200), dataclasses.replace(SMALL, micro_batches=2))
    places = []
    for _ in range(2 * stream.steps_per_epoch * 2 + 1):
        state = stream.state()
        places.append((state["epoch"], state["step"], state["micro_batch"]))
        assert equal(next(stream), stream.batch(*places[-1]))
    expected = itertools.product(range(3), range(stream.steps_per_epoch), range(2))
    assert places == list(itertools.islice(expected, len(places)))
    assert stream.tokens_per_epoch == stream.steps_per_epoch * 2 * 2 * 24


@pytest.mark.parametrize(
    "change",
    [{"seed": 4}, {"seq_len": 25}, {"predict_fraction": (0.5,)}, {"span_rule": "pieces"}, {"micro_batches": 2}],
)
def test_a_state_of_other_settings_is_refused_with_both_values(change: dict) -> None:
    corpus = corpus_of(500)
    state = stream_of(corpus, SMALL).state()
    other = stream_of(corpus, dataclasses.replace(SMALL, **change))
    key = next(iter(change))
    values = [json.dumps(v) if isinstance(v, list) else repr(v) for v in (state["settings"][key],)]
    with pytest.raises(InputError) as caught:
        other.restore(state)
    message = str(caught.value)
    assert f"{key}={values[0]}" in message and f"now {key}=" in message


def test_a_state_of_another_corpus_or_a_damaged_one_is_refused() -> None:
    stream = stream_of(corpus_of(500, seed=1), SMALL)
    with pytest.raises(InputError, match="corpus='train, 500 tokens"):
        stream.restore(stream_of(corpus_of(500, seed=2), SMALL).state())
    for damage in ({"step": 10**6}, {"epoch": -1}, {"micro_batch": 1}):
        with pytest.raises(InputError, match="damaged"):
            stream.restore({**stream.state(), **damage})
    for key in ("step", "settings"):
        state = stream.state()
        del state[key]
        with pytest.raises(InputError, match="damaged: it must hold"):
            stream.restore(state)


@pytest.mark.slow
def test_background_workers_change_nothing() -> None:
    corpus = corpus_of(300)
    plain, busy = stream_of(corpus, SMALL), stream_of(corpus, SMALL, workers=2)
    assert all(equal(next(plain), next(busy)) for _ in range(20))
    state = busy.state()
    rest = [next(busy) for _ in range(3)]
    busy.restore(state)
    assert all(equal(batch, next(busy)) for batch in rest)
    busy.close()


@pytest.mark.slow
def test_a_worker_that_dies_is_a_clear_error_and_the_stream_goes_on() -> None:
    corpus = corpus_of(300)
    stream = stream_of(corpus, SMALL, workers=1)
    next(stream)
    for child in multiprocessing.active_children():
        child.kill()
        child.join()
    taken = 1
    with pytest.raises(MachineError, match="workers=0"):
        for _ in range(20):  # what was prepared before still arrives
            next(stream)
            taken += 1
    plain = stream_of(corpus, SMALL)
    following = list(itertools.islice(plain, taken + 1))[-1]
    assert equal(next(stream), following)
    stream.close()
    assert not multiprocessing.active_children()


@pytest.mark.slow
def test_a_killed_program_leaves_no_worker_behind(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, time, multiprocessing\n"
        f"sys.path[:0] = [{str(Path(__file__).parent)!r}]\n"
        "from stream_helpers import SMALL, corpus_of, stream_of\n"
        "if __name__ == '__main__':\n"
        "    stream = stream_of(corpus_of(300), SMALL, workers=1)\n"
        "    next(stream)\n"
        "    print(multiprocessing.active_children()[0].pid, flush=True)\n"
        "    time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        worker = int(program.stdout.readline())
        program.kill()
    for _ in range(100):
        if not is_alive(worker):
            return
        time.sleep(0.1)
    raise AssertionError(f"worker {worker} is still there")


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")
    return not (status.exists() and status.read_text().rsplit(")", 1)[1].split()[0] == "Z")


@pytest.mark.slow
def test_an_error_in_a_worker_arrives_as_it_is() -> None:
    corpus = TokenCorpus.from_arrays(np.full(60, 99), [60], vocab_size=100, special_ids=SPECIAL_IDS)
    stream = stream_of(wrongly_labelled(corpus), SMALL, workers=1)
    with pytest.raises(InputError, match=r"^Token 0 of .* id 99"):
        next(stream)
    stream.close()
