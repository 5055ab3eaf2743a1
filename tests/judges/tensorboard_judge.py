#!/usr/bin/env python3
"""Does TensorBoard read what a run writes, and does a resumed run replace the steps that it does again?

    $(tools/judges) tests/judges/tensorboard_judge.py BINARY FOLDER

A run in FOLDER (empty) does 10 steps; its last checkpoint is lost, so that a resume begins at step 8 and goes
on to 14. TensorBoard's own reader must then show each step once, in order, with the values of metrics.jsonl
and the times at which they came. Prints what was compared; exit status 1 and the first difference if there
is one.
"""
import json
import pathlib
import shutil
import sys
import time

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import tiny_run
from tiny_run import fail


def curves_of(folder):
    reader = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    reader.Reload()
    return {tag: reader.Scalars(tag) for tag in reader.Tags()["scalars"]}


def expected_of(path):
    """tag -> {steps done: value}. A step that is done again voids all that there was of it and of later ones."""
    expected, last = {}, 0
    for line in path.read_text().splitlines():
        record = json.loads(line)
        if "validation_loss" in record:
            expected.setdefault("loss/validation", {})[record["step"]] = record["validation_loss"]
        if "norm" not in record:
            continue
        step = record["step"] + 1
        if step <= last:
            expected = {tag: {at: value for at, value in curve.items() if at < step} for tag, curve in expected.items()}
        last = step
        values = {"loss/train": record["loss"], "grad_norm": record["norm"], "learning_rate": record["learning_rate"],
                  "step_seconds": record["step_s"], "tokens_per_second": record["tokens_per_s"],
                  "tokens_seen": step * 8 * tiny_run.CONTEXT}
        values |= {f"time/{part}": record[part] for part in ("compute", "wait", "reduce", "commit", "update")}
        values |= {f"bytes/{link['from']} to {link['to']}": link["bytes_sent"] for link in record["links"]}
        for tag, value in values.items():
            if value is not None:
                expected.setdefault(tag, {})[step] = value
    return expected


def main():
    binary, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    tiny_run.prepare(binary, folder, steps=14)
    begin = time.time()
    tiny_run.longhaul(binary, folder, "launch", "plan.yaml", "--local", "--name", "run", "--steps", "10")
    run = folder / "runs/run"
    if [point.step for point in curves_of(run / "tensorboard")["loss/train"]] != list(range(1, 11)):
        fail("the first launch does not show steps 1 to 10")
    shutil.rmtree(next((run / "checkpoints").glob("*step-000000010")))
    tiny_run.longhaul(binary, folder, "launch", "plan.yaml", "--local", "--resume", "runs/run")
    end = time.time()

    files = sorted((run / "tensorboard").iterdir())
    if len(files) != 2:
        fail(f"two launches wrote {files}")
    curves, expected = curves_of(run / "tensorboard"), expected_of(run / "metrics.jsonl")
    if sorted(curves) != sorted(expected):
        fail(f"curves are {sorted(curves)}, not {sorted(expected)}")
    if sorted(expected["loss/train"]) != list(range(1, 15)):
        fail(f"metrics.jsonl has steps {sorted(expected['loss/train'])}")
    points = 0
    for tag, curve in curves.items():
        if [point.step for point in curve] != sorted(expected[tag]):
            fail(f"{tag} has steps {[point.step for point in curve]}, not {sorted(expected[tag])}")
        for point in curve:
            value = expected[tag][point.step]
            if not abs(point.value - value) <= 1e-6 * abs(value):  # fp32
                fail(f"{tag} of step {point.step} is {point.value}, not {value}")
        times = [point.wall_time for point in curve]
        if times != sorted(times) or times[0] < begin - 1 or times[-1] > end + 1:
            fail(f"{tag} has times {times}, not from {begin} to {end}")
        points += len(curve)
    if 10 in expected["loss/validation"] or 12 not in expected["loss/validation"]:
        fail("the validation of the lost step 10 was to be void")
    print(f"tensorboard: {points} points of {len(curves)} curves over a resume as metrics.jsonl has them")


main()
