#!/usr/bin/env python3
"""Waits with the official SDK until a job has Succeeded, and looks at all that it shows.

Usage: judge.py JOB_ID. The endpoint comes from EMULATOR, the keys from the SDK's own chain.
"""

import os
import sys
import time

from alibabacloud_credentials.client import Client as CredClient
from alibabacloud_pai_dlc20201203 import models
from alibabacloud_pai_dlc20201203.client import Client as DLCClient
from alibabacloud_tea_openapi.models import Config

LIMIT_SECONDS = 120
ENDS = ("Succeeded", "Failed", "Stopped")

job_id = sys.argv[1]
client = DLCClient(Config(credential=CredClient(), region_id="cn-hangzhou",
                          endpoint=os.environ["EMULATOR"], protocol="http"))

deadline = time.monotonic() + LIMIT_SECONDS
while True:
    job = client.get_job(job_id, models.GetJobRequest()).body
    if job.status in ENDS:
        break
    assert time.monotonic() < deadline, f"{job_id} has not ended: {job.status}"
    time.sleep(0.2)

assert job.status == "Succeeded", (job.status, job.reason_code, job.reason_message)
assert job.reason_code == "JobSucceeded", job.reason_code
assert job.job_specs[0].spot_spec.spot_strategy == "SpotWithPriceLimit"
assert job.duration >= 29, job.duration
history = [step.status for step in job.status_history]
assert history == ["Creating", "Queuing", "EnvPreparing", "Running", "Succeeded"], history

pod = job.pods[0]
logs = client.get_pod_logs(job_id, pod.pod_id, models.GetPodLogsRequest(max_lines=100)).body.logs
assert logs[0] == "Hello World" and logs[-1] == "DONE", logs
assert any("mounted.txt" in line for line in logs), logs
assert client.get_job_events(job_id, models.GetJobEventsRequest()).body.events
assert client.get_pod_events(job_id, pod.pod_id, models.GetPodEventsRequest()).body.events

listed = client.list_jobs(models.ListJobsRequest(
    workspace_id="12345", display_name="SPOT-job", status="Succeeded", show_own=True,
    sort_by="GmtCreateTime", order="desc", page_number=1, page_size=100)).body
assert job_id in [item.job_id for item in listed.jobs], listed.to_map()
assert listed.total_count >= 1

specs = client.list_ecs_specs(models.ListEcsSpecsRequest(page_size=100)).body.ecs_specs
assert any(spec.instance_type == "ecs.g7.xlarge" for spec in specs), specs

try:
    client.stop_job(job_id)
except Exception as error:  # the SDK's own class differs between its versions
    assert getattr(error, "code", "") == "BadRequest", error
else:
    raise AssertionError("a job that has ended was stopped")

print(f"{job_id}: {' -> '.join(history)}")
