#!/usr/bin/env python3
"""Drives the emulator with the official SDK through every call that its client class has.

The calls are found in the class itself: one without a case below fails the run, and so does a case
that never makes its call. The endpoint comes from EMULATOR, the keys from the SDK's own chain.
"""

import datetime
import http.client
import importlib.metadata
import json
import os
import time

from alibabacloud_credentials.client import Client as CredClient
from alibabacloud_pai_dlc20201203 import models
from alibabacloud_pai_dlc20201203.client import Client as DLCClient
from alibabacloud_tea_openapi.models import Config

LIMIT_SECONDS = 60
VERSION = importlib.metadata.version("alibabacloud_pai_dlc20201203")
WORKSPACE = f"every-call-of-{VERSION}"  # what another version did there is not seen
SUFFIX = "_with_options"
CASES = {}


class Recorder:
    """A client that notes which calls were made."""

    def __init__(self, client):
        self.client = client
        self.made = set()

    def __getattr__(self, name):
        self.made.add(name)
        return getattr(self.client, name)


config = Config(credential=CredClient(), region_id="cn-hangzhou",
                endpoint=os.environ["EMULATOR"], protocol="http")
client = Recorder(DLCClient(config))
calls = {name[:-len(SUFFIX)] for name in dir(DLCClient) if name.endswith(SUFFIX)}


def case(function):
    CASES[function.__name__] = function
    return function


def emulator(method, path, body=None):
    """One request to the emulator's own routes."""
    connection = http.client.HTTPConnection(os.environ["EMULATOR"], timeout=10)
    connection.request(method, path, json.dumps(body) if body is not None else None)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    assert answer.status == 200, (method, path, answer.status, text)
    return json.loads(text)


def refused(code, act):
    """Does what must be refused with this code, and gives the error back."""
    try:
        act()
    except Exception as error:  # the SDK's own class differs between its versions
        assert getattr(error, "code", None) == code, (code, error)
        return error
    raise AssertionError(f"{code} was expected")


def until(job_id, *statuses):
    deadline = time.monotonic() + LIMIT_SECONDS
    while True:
        job = client.get_job(job_id, models.GetJobRequest()).body
        if job.status in statuses:
            return job
        assert time.monotonic() < deadline, (job_id, job.status, statuses)
        time.sleep(0.1)


def submit(name, command, **more):
    spec = {"Type": "Worker", "Image": "registry/pai/pytorch:2.4", "PodCount": 1,
            "EcsSpec": "ecs.g7.xlarge",
            "SpotSpec": {"SpotStrategy": "SpotWithPriceLimit", "SpotDiscountLimit": 0.4}}
    body = {"WorkspaceId": WORKSPACE, "DisplayName": name, "JobType": "PyTorchJob",
            "JobSpecs": [spec], "UserCommand": command, **more}
    answer = client.create_job(models.CreateJobRequest().from_map(body)).body
    assert answer.job_id.startswith("dlc") and answer.request_id, answer.to_map()
    return answer.job_id


QUICK = submit("Quick-1", "echo hello; echo bye", Envs={"A": "1"},
               Settings={"Tags": {"team": "a"}, "EnableSanityCheck": True, "Caller": "sdk"})
LONG = submit("quick-long", "trap 'echo signalled' USR1; while :; do sleep 0.1; done")
POD = until(LONG, "Running").pods[0]
until(QUICK, "Succeeded")
services = {}


@case
def create_job():
    both = {"SpotStrategy": "SpotWithPriceLimit", "SpotDiscountLimit": 0.4, "SpotPriceLimit": 1.0}
    refused("InvalidParameter", lambda: submit("no name", "true"))
    wrong = models.CreateJobRequest().from_map({
        "DisplayName": "both", "JobType": "PyTorchJob", "UserCommand": "true",
        "JobSpecs": [{"Type": "Worker", "PodCount": 1, "SpotSpec": both}]})
    refused("InvalidParameter", lambda: client.create_job(wrong))


@case
def get_job():
    job = client.get_job(QUICK, models.GetJobRequest(need_detail=True)).body
    assert (job.job_id, job.display_name, job.reason_code) == (QUICK, "Quick-1", "JobSucceeded")
    assert job.settings.tags == {"team": "a"} and job.envs == {"A": "1"}, job.to_map()
    assert job.gmt_finish_time.endswith("Z") and job.workspace_id == WORKSPACE
    history = [step.status for step in job.status_history]
    assert history == ["Creating", "Queuing", "EnvPreparing", "Running", "Succeeded"], history
    assert job.pods[0].status == "Succeeded" and job.pods[0].pod_uid
    if "get_signal" in calls:  # fields that came with the newer one
        assert (job.request_cpu, job.request_gpu) == (4, 0), "and numbers here"
    refused("NotFound", lambda: client.get_job("dlcnone", models.GetJobRequest()))


@case
def list_jobs():
    def found(**query):
        query = {"workspace_id": WORKSPACE, "sort_by": "DisplayName", "order": "asc", **query}
        answer = client.list_jobs(models.ListJobsRequest(**query)).body
        assert answer.total_count >= len(answer.jobs), answer.to_map()
        return [job.job_id for job in answer.jobs]

    both = [QUICK, LONG]
    assert found(display_name="QUICK-") == both
    assert found(display_name="QUICK-", page_size=1, page_number=2) == [LONG]
    assert found(tags={"team": "a"}) == [QUICK]
    assert found(tags={"team": "b"}) == []
    assert found(status="Running", display_name="quick") == [LONG]
    assert found(caller="sdk", show_own=True) == [QUICK]
    assert found(job_id=LONG) == [LONG]
    assert found(workspace_id="another", display_name="quick") == []
    assert found(start_time="2001-01-01T00:00:00Z", end_time="2001-02-01T00:00:00Z") == []
    all_of_mine = found(workspace_id="another", from_all_workspaces=True, show_own=True,
                        page_size=100)
    assert set(both) <= set(all_of_mine)
    refused("InvalidParameter", lambda: found(status="Running,Failed"))
    refused("InvalidParameter", lambda: found(from_all_workspaces=True))
    if "get_signal" in calls:  # filters that came with the newer one
        assert found(job_ids=f"{QUICK},{LONG}") == both
        assert found(payment_type="Spot", user_command_search="signalled") == [LONG]
        assert found(image_search="pytorch", reason_search="JobSucceeded") == [QUICK]
    item = client.list_jobs(models.ListJobsRequest(job_id=QUICK)).body.jobs[0]
    assert item.settings.tags == {"team": "a"} and item.user_command, item.to_map()
    assert (item.request_gpu, item.node_names) == ("0", []), "numbers are texts in lists"


@case
def update_job():
    request = models.UpdateJobRequest(priority=9, accessibility="PUBLIC")
    assert client.update_job(LONG, request).body.job_id == LONG
    job = client.get_job(LONG, models.GetJobRequest()).body
    assert (job.priority, job.accessibility) == (1, "PUBLIC"), "public spot jobs have no priority"
    back = models.UpdateJobRequest(accessibility="PRIVATE")
    refused("InvalidParameter", lambda: client.update_job(LONG, back))
    refused("InvalidParameter", lambda: client.update_job(LONG, models.UpdateJobRequest(priority=10)))


@case
def stop_job():
    job = submit("to-stop", "sleep 1000")
    until(job, "Running")
    assert client.stop_job(job).body.job_id == job
    assert client.get_job(job, models.GetJobRequest()).body.status in ("Stopping", "Stopped")
    assert until(job, "Stopped").reason_code == "JobStoppedByUser"
    refused("BadRequest", lambda: client.stop_job(job))


@case
def delete_job():
    refused("BadRequest", lambda: client.delete_job(LONG))
    job = submit("to-delete", "true")
    until(job, "Succeeded")
    assert client.delete_job(job).body.job_id == job
    refused("NotFound", lambda: client.get_job(job, models.GetJobRequest()))


@case
def get_job_events():
    events = client.get_job_events(QUICK, models.GetJobEventsRequest()).body.events
    assert len(events) >= 3 and events[0].startswith("20"), events
    last = client.get_job_events(QUICK, models.GetJobEventsRequest(max_events_num=1)).body.events
    assert last == events[-1:], (last, events)
    early = models.GetJobEventsRequest(end_time="2001-01-01T00:00:00Z")
    assert client.get_job_events(QUICK, early).body.events == []


@case
def get_pod_events():
    request = models.GetPodEventsRequest(pod_uid=POD.pod_uid)
    answer = client.get_pod_events(LONG, POD.pod_id, request).body
    assert answer.pod_uid == POD.pod_uid and any("Started" in line for line in answer.events)
    wrong = models.GetPodEventsRequest(pod_uid="another")
    refused("NotFound", lambda: client.get_pod_events(LONG, POD.pod_id, wrong))


@case
def get_pod_logs():
    pod = client.get_job(QUICK, models.GetJobRequest()).body.pods[0]
    answer = client.get_pod_logs(QUICK, pod.pod_id, models.GetPodLogsRequest(max_lines=1)).body
    assert (answer.logs, answer.pod_uid) == (["bye"], pod.pod_uid), answer.to_map()
    whole = models.GetPodLogsRequest(pod_uid=pod.pod_uid, start_time="2001-01-01T00:00:00Z")
    assert client.get_pod_logs(QUICK, pod.pod_id, whole).body.logs == ["hello", "bye"]
    early = models.GetPodLogsRequest(end_time="2001-01-01T00:00:00Z")
    assert client.get_pod_logs(QUICK, pod.pod_id, early).body.logs == []


@case
def get_job_metrics():
    request = models.GetJobMetricsRequest(metric_type="CpuCoreUsage", time_step="1")
    pods = client.get_job_metrics(LONG, request).body.pod_metrics
    assert pods[0].pod_id == POD.pod_id and pods[0].metrics[0].time > 10 ** 12, pods
    missing = models.GetJobMetricsRequest()
    refused("InvalidParameter", lambda: client.get_job_metrics(LONG, missing))


@case
def get_metrics():
    request = models.GetMetricsRequest(job_id=LONG, dimensions="[]", period="15", length="1")
    answer = client.get_metrics(request).body
    assert answer.success and answer.code == "200", answer.to_map()
    assert json.loads(answer.data_points)[0]["podId"] == POD.pod_id, answer.to_map()


@case
def list_job_sanity_check_results():
    request = models.ListJobSanityCheckResultsRequest(order="asc")
    answer = client.list_job_sanity_check_results(QUICK, request).body
    assert answer.request_id, "this answer spells it RequestID"
    assert answer.total_count == 1 and len(answer.sanity_check_results[0]) == 5, answer.to_map()


@case
def get_job_sanity_check_result():
    request = models.GetJobSanityCheckResultRequest(
        sanity_check_number=1, sanity_check_phase="DeviceCheck")
    answer = client.get_job_sanity_check_result(QUICK, request).body
    assert answer.request_id and len(answer.sanity_check_result) == 1, answer.to_map()
    assert answer.sanity_check_result[0].status == "Succeeded"
    wrong = models.GetJobSanityCheckResultRequest()
    refused("InvalidParameter", lambda: client.get_job_sanity_check_result(QUICK, wrong))


@case
def list_ecs_specs():
    answer = client.list_ecs_specs(models.ListEcsSpecsRequest(page_size=100)).body
    assert answer.total_count == len(answer.ecs_specs)
    spec = next(s for s in answer.ecs_specs if s.instance_type == "ecs.g7.xlarge")
    assert (spec.accelerator_type, spec.cpu, spec.is_available) == ("CPU", 4, True), spec.to_map()
    if "get_signal" in calls:  # fields that came with the newer one
        assert (spec.spot_stock_status, spec.non_protect_spot_discount) == ("WithStock", 0.3)
    second = client.list_ecs_specs(models.ListEcsSpecsRequest(page_size=1, page_number=2)).body
    assert second.ecs_specs[0].instance_type == answer.ecs_specs[1].instance_type
    lingjun = client.list_ecs_specs(models.ListEcsSpecsRequest(resource_type="Lingjun")).body
    assert {s.resource_type for s in lingjun.ecs_specs} == {"Lingjun"}
    named = models.ListEcsSpecsRequest(instance_types="ecs.g7.xlarge,none", accelerator_type="CPU")
    assert client.list_ecs_specs(named).body.total_count == 1
    sorted_ = models.ListEcsSpecsRequest(sort_by="CPU")
    refused("InvalidParameter", lambda: client.list_ecs_specs(sorted_))


@case
def get_web_terminal():
    request = models.GetWebTerminalRequest(pod_uid=POD.pod_uid)
    url = client.get_web_terminal(LONG, POD.pod_id, request).body.web_terminal_url
    assert url.startswith("https://"), url


@case
def get_token():
    request = models.GetTokenRequest(target_id=LONG, target_type="job", expire_time=60)
    assert client.get_token(request).body.token
    wrong = models.GetTokenRequest(target_id="dlcnone", target_type="job")
    refused("NotFound", lambda: client.get_token(wrong))


@case
def get_dashboard():
    assert client.get_dashboard(LONG, models.GetDashboardRequest()).body.url.startswith("https://")
    shared = models.GetDashboardRequest(is_shared=True)
    refused("InvalidParameter", lambda: client.get_dashboard(LONG, shared))


@case
def get_ray_dashboard():
    refused("BadRequest",
            lambda: client.get_ray_dashboard(LONG, models.GetRayDashboardRequest()))
    ray = submit("ray", "sleep 1000", JobType="RayJob")
    until(ray, "Running")
    answer = client.get_ray_dashboard(ray, models.GetRayDashboardRequest()).body
    assert answer.url.startswith("https://") and answer.metrics_enabled is False, answer.to_map()
    client.stop_job(ray)


@case
def create_signal():
    target = models.SignalTarget(scope="pods", pod_names=[POD.pod_id])
    request = models.CreateSignalRequest(signal="SIGUSR1", target=target)
    answer = client.create_signal(LONG, request).body
    assert (answer.job_id, answer.signal) == (LONG, "SIGUSR1"), answer.to_map()
    services["signal"] = answer.signal_id
    deadline = time.monotonic() + LIMIT_SECONDS
    logs = models.GetPodLogsRequest(max_lines=1)
    while client.get_pod_logs(LONG, POD.pod_id, logs).body.logs != ["signalled"]:
        assert time.monotonic() < deadline, "the signal does not arrive"
        time.sleep(0.1)
    wrong = models.CreateSignalRequest(signal="SIGNONE", target=target)
    refused("InvalidParameter", lambda: client.create_signal(LONG, wrong))


@case
def get_signal():
    answer = client.get_signal(LONG, services["signal"], models.GetSignalRequest()).body
    assert (answer.scope, answer.pod_names) == ("pods", [POD.pod_id]), answer.to_map()
    refused("NotFound", lambda: client.get_signal(LONG, "sig-none", models.GetSignalRequest()))


@case
def list_signals():
    answer = client.list_signals(LONG, models.ListSignalsRequest(page_size="5")).body
    assert [signal.signal_id for signal in answer.signals] == [services["signal"]]
    assert (answer.total_count, answer.page_size) == (1, 5), answer.to_map()


@case
def tag_resources():
    tags = [models.TagResourcesRequestTag(key="cost", value="42")]
    request = models.TagResourcesRequest(
        region_id="cn-hangzhou", resource_type="Job", resource_id=[QUICK], tag=tags)
    assert client.tag_resources(request).body.request_id
    job = client.get_job(QUICK, models.GetJobRequest()).body
    assert job.settings.tags == {"team": "a", "cost": "42"}, job.settings.tags


@case
def untag_resources():
    request = models.UntagResourcesRequest(
        resource_type="Job", resource_id=[QUICK], tag_key=["cost"])
    assert client.untag_resources(request).body.request_id
    job = client.get_job(QUICK, models.GetJobRequest()).body
    assert job.settings.tags == {"team": "a"}, job.settings.tags


@case
def create_tensorboard():
    request = models.CreateTensorboardRequest(
        workspace_id=WORKSPACE, display_name="board", job_id=LONG, summary_path="/logs")
    answer = client.create_tensorboard(request).body
    assert answer.job_id == LONG and answer.tensorboard_id, answer.to_map()
    services["board"] = answer.tensorboard_id


@case
def update_tensorboard():
    request = models.UpdateTensorboardRequest(workspace_id=WORKSPACE, accessibility="PUBLIC")
    answer = client.update_tensorboard(services["board"], request).body
    assert answer.tensorboard_id == services["board"]


@case
def get_tensorboard():
    board = client.get_tensorboard(services["board"], models.GetTensorboardRequest()).body
    assert (board.status, board.accessibility) == ("Running", "PUBLIC"), board.to_map()
    assert (board.display_name, board.job_id) == ("board", LONG), board.to_map()


@case
def get_tensorboard_shared_url():
    request = models.GetTensorboardSharedUrlRequest(expire_time_seconds="60")
    answer = client.get_tensorboard_shared_url(services["board"], request).body
    assert answer.tensorboard_shared_url.startswith("https://"), answer.to_map()


@case
def list_tensorboards():
    request = models.ListTensorboardsRequest(workspace_id=WORKSPACE, display_name="BOA", job_id=LONG)
    answer = client.list_tensorboards(request).body
    assert [board.tensorboard_id for board in answer.tensorboards] == [services["board"]]
    assert answer.total_count == 1


@case
def stop_tensorboard():
    request = models.StopTensorboardRequest(workspace_id=WORKSPACE)
    assert client.stop_tensorboard(services["board"], request).body.tensorboard_id
    board = client.get_tensorboard(services["board"], models.GetTensorboardRequest()).body
    assert board.status == "Stopped", board.to_map()


@case
def start_tensorboard():
    request = models.StartTensorboardRequest(workspace_id=WORKSPACE)
    assert client.start_tensorboard(services["board"], request).body.tensorboard_id
    refused("BadRequest", lambda: client.start_tensorboard(services["board"], request))


@case
def delete_tensorboard():
    request = models.DeleteTensorboardRequest(workspace_id=WORKSPACE)
    assert client.delete_tensorboard(services["board"], request).body.tensorboard_id
    gone = models.GetTensorboardRequest()
    refused("NotFound", lambda: client.get_tensorboard(services["board"], gone))


@case
def create_ray_history_server():
    request = models.CreateRayHistoryServerRequest(
        workspace_id=WORKSPACE, display_name="history", storage_path="oss://bucket/ray/")
    services["ray"] = client.create_ray_history_server(request).body.ray_history_server_id
    wrong = models.CreateRayHistoryServerRequest(workspace_id=WORKSPACE)
    refused("InvalidParameter", lambda: client.create_ray_history_server(wrong))


@case
def get_ray_history_server():
    request = models.GetRayHistoryServerRequest()
    server = client.get_ray_history_server(services["ray"], request).body
    assert (server.status, server.storage_path) == ("Running", "oss://bucket/ray/")


@case
def list_ray_history_servers():
    request = models.ListRayHistoryServersRequest(workspace_id=WORKSPACE, display_name="HIST")
    answer = client.list_ray_history_servers(request).body
    ids = [server.ray_history_server_id for server in answer.ray_history_servers]
    assert ids == [services["ray"]] and answer.total_count == 1, answer.to_map()


@case
def stop_ray_history_server():
    request = models.StopRayHistoryServerRequest()
    assert client.stop_ray_history_server(services["ray"], request).body.request_id
    refused("BadRequest", lambda: client.stop_ray_history_server(services["ray"], request))


@case
def start_ray_history_server():
    request = models.StartRayHistoryServerRequest()
    assert client.start_ray_history_server(services["ray"], request).body.request_id


@case
def delete_ray_history_server():
    request = models.DeleteRayHistoryServerRequest()
    assert client.delete_ray_history_server(services["ray"], request).body.request_id
    gone = models.GetRayHistoryServerRequest()
    refused("NotFound", lambda: client.get_ray_history_server(services["ray"], gone))


@case
def create_job_template():
    request = models.CreateJobTemplateRequest(
        workspace_id=WORKSPACE, template_name="nightly", content='{"Priority":1}',
        constraints={"$.Priority": "locked"}, metadata={"k": "v"})
    answer = client.create_job_template(request).body
    assert (answer.version, answer.default_version) == (1, 1), answer.to_map()
    services["template"] = answer.template_id


@case
def update_job_template():
    request = models.UpdateJobTemplateRequest(content='{"Priority":2}', description="second")
    answer = client.update_job_template(services["template"], request).body
    assert (answer.version, answer.version_created, answer.default_version) == (2, True, 1)


@case
def set_job_template_default_version():
    request = models.SetJobTemplateDefaultVersionRequest(version=2)
    answer = client.set_job_template_default_version(services["template"], request).body
    assert answer.default_version == 2, answer.to_map()
    wrong = models.SetJobTemplateDefaultVersionRequest(version=9)
    refused("NotFound",
            lambda: client.set_job_template_default_version(services["template"], wrong))


@case
def get_job_template():
    answer = client.get_job_template(services["template"], models.GetJobTemplateRequest()).body
    assert (answer.total_count, answer.default_version) == (2, 2), answer.to_map()
    assert [version.version for version in answer.versions] == [1, 2]
    assert (answer.description, answer.metadata) == ("second", {"k": "v"}), answer.to_map()


@case
def list_job_templates():
    request = models.ListJobTemplatesRequest(workspace_id=WORKSPACE, template_name="night")
    answer = client.list_job_templates(request).body
    assert [one.template_id for one in answer.job_templates] == [services["template"]]
    assert answer.total_count == 1


@case
def delete_job_template():
    request = models.DeleteJobTemplateRequest()
    answer = client.delete_job_template(services["template"], request).body
    assert answer.template_id == services["template"]
    gone = models.GetJobTemplateRequest()
    refused("NotFound", lambda: client.get_job_template(services["template"], gone))


def faults():
    """What the SDK makes of errors that were asked for."""
    def under(rule, code):
        emulator("PUT", "/emulator/faults", [{"call": "GetToken", **rule}])
        request = models.GetTokenRequest(target_id=LONG, target_type="job")
        error = refused(code, lambda: client.get_token(request))
        emulator("DELETE", "/emulator/faults")
        assert client.get_token(request).body.token
        return error

    error = under({"throttle": True, "retry_after": "1500ms"}, "Throttling.User")
    assert getattr(error, "retry_after", None) == 1500, vars(error)
    error = under({"access_denied_detail": True}, "Forbidden.RAM")
    denied = getattr(error, "access_denied_detail", None) or error.data["accessDeniedDetail"]
    assert denied["AuthAction"] == "pai:GetToken", denied


missing = sorted(calls - CASES.keys())
assert not missing, f"calls of this SDK without a case: {missing}"
needed = {"create_job", "list_jobs", "get_job", "stop_job", "delete_job", "update_job"}
assert needed <= calls, f"the client class is read in the wrong way: {sorted(calls)}"
began = datetime.datetime.now()
for name, run in CASES.items():
    if name in calls:
        client.made.discard(name)
        try:
            run()
        except BaseException:
            print(f"in the case of {name}:")
            raise
        assert name in client.made, f"the case of {name} never makes the call"
faults()
client.stop_job(LONG)
until(LONG, "Stopped")
seconds = (datetime.datetime.now() - began).total_seconds()
print(f"PAI-DLC SDK {VERSION}: {len(calls)} calls answered in {seconds:.0f} s")
