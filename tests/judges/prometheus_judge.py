#!/usr/bin/env python3
"""Do Prometheus' own parsers read what a run serves, and can nobody who asks hold it up?

    $(tools/judges) tests/judges/prometheus_judge.py BINARY FOLDER

A run in FOLDER (empty) that does not end is scraped in both formats while slow and broken clients hold on to
it. Prints what was compared; exit status 1 and the first difference if there is one.
"""
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client import parser as plain

import tiny_run
from tiny_run import fail


def scrape(url, accept):
    request = urllib.request.Request(url, headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=20) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


def samples_of(families):
    """(name, labels) -> value, and name of family -> type."""
    samples, types = {}, {}
    for family in families:
        types[family.name] = family.type
        for sample in family.samples:
            samples[sample.name, tuple(sorted(sample.labels.items()))] = sample.value
    return samples, types


def status_of(url, **request):
    try:
        return urllib.request.urlopen(urllib.request.Request(url, **request), timeout=20).status
    except urllib.error.HTTPError as error:
        return error.code


def step_of(url):
    return samples_of(plain.text_string_to_metric_families(scrape(url, "text/plain")[1]))[0]["longhaul_step", ()]


def check(process):
    for line in process.stderr:
        if match := re.search(r"metrics: (http://\S+)", line):
            url = match[1]
        if line.startswith("step 11/"):
            break
    else:
        fail("the run ended by itself")
    # From here on nothing reads the run's stderr but a pipe of 64 KiB, enough for what is left.
    address = re.match(r"http://([^:]+):(\d+)/", url)
    held = []
    for text in (b"", b"GET /metr", b"\x16\x03\x01\x02\x00", b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 9999999999\r\n\r\n"):
        held.append(socket.create_connection((address[1], int(address[2]))))
        held[-1].sendall(text)

    content_type, text = scrape(url, "text/plain")
    if content_type != "text/plain; version=0.0.4; charset=utf-8":
        fail(f"plain text is of type {content_type}")
    samples, types = samples_of(plain.text_string_to_metric_families(text))
    content_type, text = scrape(url, "application/openmetrics-text; version=1.0.0")
    if content_type != "application/openmetrics-text; version=1.0.0; charset=utf-8":
        fail(f"OpenMetrics is of type {content_type}")
    open_samples, open_types = samples_of(openmetrics.text_string_to_metric_families(text))
    if sorted(samples) != sorted(open_samples):
        fail(f"the formats differ in {set(samples) ^ set(open_samples)}")
    expected = {"longhaul_run": "info", "longhaul_step": "gauge", "longhaul_steps": "counter",
                "longhaul_step_seconds": "histogram", "longhaul_link_sent_bytes": "counter"}
    for name, kind in expected.items():
        if open_types.get(name) != kind:
            fail(f"{name} is a {open_types.get(name)}, not a {kind}")
    # A step is told when all workers have said where it went, at most two steps later.
    if not 9 <= samples["longhaul_step", ()] <= open_samples["longhaul_step", ()]:
        fail(f"step 11 is done, and then {samples['longhaul_step', ()]} and {open_samples['longhaul_step', ()]}")
    if samples["longhaul_tokens_total", ()] != samples["longhaul_steps_total", ()] * 8 * tiny_run.CONTEXT:
        fail("a step has 128 tokens")
    count = samples["longhaul_step_seconds_count", ()]
    if count != samples["longhaul_steps_total", ()] - 1 or count != samples["longhaul_step_seconds_bucket", (("le", "+Inf"),)]:
        fail(f"{count} steps have a duration")
    link = (("from", "delft"), ("to", "new york"))
    if samples["longhaul_link_sent_bytes_total", link] <= 0 or samples["longhaul_connected_workers", ()] != 2:
        fail("workers send nothing or are not there")

    for code, request in {200: {"method": "HEAD"}, 405: {"method": "POST", "data": b"x" * 100_000}}.items():
        if status_of(url, **request) != code:
            fail(f"{request['method']} is answered with {status_of(url, **request)}, not {code}")
    if status_of(url.replace("/metrics", "/other")) != 404:
        fail("/other is there")
    before = step_of(url)
    deadline = time.monotonic() + 60
    while step_of(url) <= before:
        if time.monotonic() > deadline:
            fail("the run stands still")
    for one in held:
        one.close()
    print(f"prometheus: {len(samples)} samples in both formats, {len(types)} families")


def main():
    binary, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    tiny_run.prepare(binary, folder, steps=1_000_000)
    process = subprocess.Popen([binary, "launch", "plan.yaml", "--local", "--metrics", "0"], cwd=folder,
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        check(process)
    finally:
        process.send_signal(signal.SIGINT)
        process.stderr.read()
        process.wait()
    if process.returncode != 128 + signal.SIGINT:
        fail(f"the run ended with {process.returncode}")


main()
