"""Two replicas of the embedded model on a Ray cluster of this machine."""

from __future__ import annotations

import copy
import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tiny_llm.deploy.gateway import METRICS_SECONDS

from ..support.processes.child import ROOT
from ..support.serving.running import read_all
from .cluster import Cluster, running

pytestmark = [pytest.mark.ray, pytest.mark.filterwarnings("ignore:Using extra keyword arguments")]
KEY = "a-long-secret"
FILES = ROOT / "docs" / "scaling"
BACK_SECONDS = 60


def read_yaml(text: str) -> Any:
    import yaml

    return yaml.safe_load(text)


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """That of the docs, for this machine."""
    keys = tmp_path_factory.mktemp("keys") / "keys"
    keys.write_text(KEY)
    config: dict[str, Any] = read_yaml((FILES / "two-nodes.yaml").read_text())
    (application,) = config["applications"]
    application["args"] |= {"model": "tiny", "cpus": 1, "gateways": 1, "api_key_file": str(keys)}
    application["args"] |= {"offline": True, "max_replicas": None, "open_metrics": False}
    return config


@pytest.fixture(scope="module")
def cluster(config: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    headers = {"authorization": f"Bearer {KEY}"}
    with running(config, tmp_path_factory.mktemp("ray"), headers) as started:
        started.wait_for_replicas(2)
        yield started


def conversation(number: int) -> list[dict[str, str]]:
    return [{"role": "user", "content": f"Tell me story number {number}."}]


def test_two_replicas_answer(cluster: Cluster) -> None:
    for number in range(20):
        assert cluster.chat(messages=conversation(number)).status == 200
    answered = cluster.metric("tiny_llm_request_success_total", finished_reason="length")
    assert len(answered) == len(cluster.replicas()) == 2
    assert min(answered.values()) > 0
    assert sum(answered.values()) == 20


def test_a_replica_has_the_threads_that_ray_grants(cluster: Cluster) -> None:
    assert "a replica with 1 threads" in cluster.log.read_text()


def test_later_turns_find_the_pages_of_earlier_ones(cluster: Cluster) -> None:
    before = sum(cluster.metric("tiny_llm_prefix_cache_hits_total").values())
    asked = conversation(77)
    first = cluster.chat(messages=asked, max_tokens=60).record
    asked += [first["choices"][0]["message"], {"role": "user", "content": "And then?"}]
    second = cluster.chat(messages=asked).record
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] >= first["usage"]["prompt_tokens"]
    assert sum(cluster.metric("tiny_llm_prefix_cache_hits_total").values()) > before


def test_streams_come_token_by_token(cluster: Cluster) -> None:
    body = json.dumps({"prompt": "Once", "max_tokens": 300, "stream": True, "ignore_eos": True}).encode()
    with cluster.connect() as connection:
        connection.sendall(post("/v1/completions", body))
        start = time.perf_counter()
        assert connection.recv(15) == b"HTTP/1.1 200 OK"
        first = time.perf_counter() - start
        rest = read_all(connection)
    assert b"text/event-stream" in rest
    assert rest.count(b"\ndata: {") >= 100
    assert b"data: [DONE]" in rest
    assert first < (time.perf_counter() - start) / 2


def post(path: str, body: bytes) -> bytes:
    head = [f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json", "Connection: close"]
    head += [f"Authorization: Bearer {KEY}", f"Content-Length: {len(body)}", "", ""]
    return "\r\n".join(head).encode() + body


def test_a_client_that_leaves_ends_its_request(cluster: Cluster) -> None:
    cancelled = lambda: sum(  # noqa: E731
        cluster.metric("tiny_llm_request_success_total", finished_reason="cancelled").values()
    )
    before = cancelled()
    body = json.dumps({"prompt": "Once", "max_tokens": 1500, "stream": True, "ignore_eos": True}).encode()
    with cluster.connect() as connection:
        connection.sendall(post("/v1/completions", body))
        assert connection.recv(15)
    end = time.monotonic() + 20
    while cancelled() == before and time.monotonic() < end:
        time.sleep(0.2)
    assert cancelled() == before + 1


def test_errors_and_keys_are_those_of_the_server(cluster: Cluster) -> None:
    wrong = cluster.chat(temperature=-1)
    assert (wrong.status, wrong.error["param"]) == (400, "temperature")
    for path in ("/v1/models", "/metrics"):
        refused = cluster.get(path, authorization="Bearer wrong")
        assert (refused.status, refused.error["code"]) == (401, "invalid_api_key")
    assert cluster.request("POST", "/v1/chat/completions", {}, {"authorization": "x"}).status == 401


def test_a_replica_that_hangs_is_named_in_the_metrics(cluster: Cluster) -> None:
    stopped = cluster.replicas()[0]
    os.kill(stopped, signal.SIGSTOP)
    try:
        start = time.monotonic()
        up = cluster.metric("tiny_llm_replica_up")
        assert time.monotonic() - start < 2 * METRICS_SECONDS
        assert sorted(up.values()) == [0, 1]
        assert len(cluster.metric("tiny_llm_num_requests_running")) == 1
    finally:
        os.kill(stopped, signal.SIGCONT)
    cluster.wait_for_replicas(2, BACK_SECONDS)
    assert set(cluster.metric("tiny_llm_replica_up").values()) == {1}


def ask(cluster: Cluster, number: int, stream: bool) -> str:
    """How a request ended: "done", "error" with an error of the server, or what else came."""
    answer = cluster.chat(messages=conversation(number), max_tokens=120, ignore_eos=True, stream=stream)
    if answer.status != 200:
        return "error" if answer.error["code"] == "engine_failed" else str(answer)
    if not stream:
        return "done" if answer.record["choices"][0]["finish_reason"] == "length" else str(answer)
    last = answer.body.strip().rsplit(b"\n\n", 1)[-1]
    if last == b"data: [DONE]":
        return "done"
    return "error" if last.startswith(b'data: {"error"') else str(last)


def test_a_killed_replica_comes_back_and_no_request_is_lost_without_an_error(cluster: Cluster) -> None:
    ends: Counter[str] = Counter()
    stop = threading.Event()

    def load(worker: int) -> None:
        number = 0
        while not stop.is_set():
            number += 1
            ends[ask(cluster, 1000 * worker + number, stream=worker % 2 == 0)] += 1

    workers = [threading.Thread(target=load, args=(worker,)) for worker in range(6)]
    for worker in workers:
        worker.start()
    time.sleep(2)
    before = cluster.replicas()
    assert len(before) == 2
    os.kill(before[0], signal.SIGKILL)
    cluster.wait_for_replicas(1, BACK_SECONDS)
    cluster.wait_for_replicas(2, BACK_SECONDS)
    stop.set()
    for worker in workers:
        worker.join()
    assert len(set(cluster.replicas()) - {before[0]}) == 2
    assert ends["done"] > 20
    assert ends.keys() <= {"done", "error"}
    assert ends["error"] <= len(workers)  # no more than were being answered


def test_requests_end_while_no_machine_has_room_for_a_replica(config: dict[str, Any], tmp_path: Path) -> None:
    config = copy.deepcopy(config)
    config["applications"][0]["args"] |= {"gpus": 1000, "replica_timeout": 1}
    with running(config, tmp_path, {"authorization": f"Bearer {KEY}"}, ready=503) as cluster:
        for answer in (cluster.chat(), cluster.chat(stream=True), cluster.get("/v1/models")):
            assert (answer.status, answer.error["code"]) == (503, "engine_failed")
            assert answer.headers["retry-after"] == "1"
        assert cluster.get("/metrics").status == 503
        assert cluster.get("/metrics", authorization="x").status == 401


@pytest.mark.parametrize("file", ["two-nodes.yaml", "kuberay.yaml"])
def test_the_files_of_the_docs_are_what_ray_reads(file: str) -> None:
    from ray.serve.schema import ServeDeploySchema

    from tiny_llm.deploy.arguments import RayArguments, parse

    config = read_yaml((FILES / file).read_text())
    if file == "kuberay.yaml":
        config = read_yaml(config["spec"]["serveConfigV2"])
    (application,) = ServeDeploySchema.model_validate(config).applications
    assert application.import_path == "tiny_llm.deploy.ray:app"
    arguments = RayArguments.model_validate(application.args)
    parse(arguments.command_line)
    assert arguments.max_replicas is not None


def test_the_file_for_kubernetes_has_a_cluster_with_a_token() -> None:
    service = read_yaml((FILES / "kuberay.yaml").read_text())
    assert (service["apiVersion"], service["kind"]) == ("ray.io/v1", "RayService")
    assert service["spec"].keys() == {"serveConfigV2", "rayClusterConfig"}
    cluster = service["spec"]["rayClusterConfig"]
    assert cluster["authOptions"] == {"mode": "token"}
    application = read_yaml(service["spec"]["serveConfigV2"])["applications"][0]
    groups = cluster["workerGroupSpecs"]
    assert sum(group["maxReplicas"] for group in groups) >= application["args"]["max_replicas"]
    for group in (cluster["headGroupSpec"], *groups):
        assert group["rayStartParams"] is not None
        (container,) = group["template"]["spec"]["containers"]
        assert container["resources"]["requests"] == container["resources"]["limits"]
        assert [variable["name"] for variable in container["env"]] == ["TINY_LLM_API_KEY"]
        if group in groups:
            assert int(container["resources"]["requests"]["cpu"]) > application["args"]["cpus"]


def test_the_number_of_replicas_follows_the_queues() -> None:
    from tiny_llm.deploy.router import QUEUE, by_queue

    context = SimpleNamespace(
        aggregated_metrics={QUEUE: {"a": 30.0, "b": 10.0}, "other": {"a": 99.0}},
        total_queued_requests=8,
        config=SimpleNamespace(target_ongoing_requests=16),
    )
    assert by_queue(context) == (3.0, {})  # type: ignore[arg-type]
    context.aggregated_metrics = None
    assert by_queue(context) == (0.5, {})  # type: ignore[arg-type]


def test_the_ranks_of_a_replica_are_one_bundle() -> None:
    from tiny_llm.deploy.ray import RayArguments, app

    given = {"tensor_parallel": 2, "cpus": 4, "gpus": 1, "max_replicas": 3}
    built = app(RayArguments.model_validate(given))
    replica = built._bound_deployment.init_args[0]._bound_deployment
    assert replica._replica_config.placement_group_bundles == [{"CPU": 8, "GPU": 2}]
    assert replica._replica_config.ray_actor_options["num_cpus"] == 8
    assert replica._deployment_config.autoscaling_config.max_replicas == 3
