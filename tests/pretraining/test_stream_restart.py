"""Any batch can be had again exactly: saved positions, background workers, dead workers."""

from __future__ import annotations

import dataclasses
import itertools
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
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
def test_workers_that_are_left_when_one_dies_end_as_well() -> None:
    stream = stream_of(corpus_of(300), SMALL, workers=3)
    for _ in range(20):  # enough for the pool to have started all
        next(stream)
    first, *others = multiprocessing.active_children()
    assert len(others) == 2
    first.kill()
    with pytest.raises(MachineError, match="workers=0"):
        for _ in range(40):
            next(stream)
    assert not multiprocessing.active_children()


SCRIPT = f"""
import multiprocessing, os, signal, sys, threading, time
sys.path[:0] = [{str(Path(__file__).parent)!r}]
from stream_helpers import SMALL, corpus_of, stream_of
"""


def script(folder: Path, main: str) -> list[str]:
    path = folder / "script.py"
    path.write_text(SCRIPT + "if __name__ == '__main__':\n" + textwrap.indent(textwrap.dedent(main), "    "))
    return [sys.executable, str(path)]


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["importing", "working"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_a_signal_to_the_whole_group_is_for_the_main_process_alone(
    tmp_path: Path, number: signal.Signals, moment: str
) -> None:
    main = f"""
        heard = []
        signal.signal({int(number)}, lambda *_: heard.append(1))
        def strike():
            while not multiprocessing.active_children():
                time.sleep(0.001)
            os.killpg(0, {int(number)})
        stream = stream_of(corpus_of(300), SMALL, workers=2)
        if {moment == "importing"}:
            striker = threading.Thread(target=strike)
            striker.start()
            next(stream)
            striker.join()
        else:
            next(stream)
            strike()
        for _ in range(40):
            next(stream)
        stream.close()
        print(len(heard), len(multiprocessing.active_children()))
    """
    done = subprocess.run(
        script(tmp_path, main), capture_output=True, text=True, start_new_session=True, timeout=300, check=False
    )
    assert (done.stdout, done.returncode) == ("1 0\n", 0), done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=lambda number: number.name)
def test_a_killed_program_leaves_no_worker_behind(tmp_path: Path, number: signal.Signals) -> None:
    main = """
        stream = stream_of(corpus_of(300), SMALL, workers=1)
        next(stream)
        print(multiprocessing.active_children()[0].pid, flush=True)
        time.sleep(600)
    """
    with subprocess.Popen(script(tmp_path, main), stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        worker = int(program.stdout.readline())
        program.send_signal(number)
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
