#!/usr/bin/env python3
"""Drives the emulator's PaiStudio and AIWorkSpace calls with the official SDKs of these products.

The endpoint comes from EMULATOR, the keys from the SDK's own chain.
"""

import os

from alibabacloud_aiworkspace20210204 import models as workspace_models
from alibabacloud_aiworkspace20210204.client import Client as WorkspaceClient
from alibabacloud_credentials.client import Client as CredClient
from alibabacloud_paistudio20220112 import models as studio_models
from alibabacloud_paistudio20220112.client import Client as StudioClient
from alibabacloud_tea_openapi.models import Config

URI = "oss://bucket.oss-cn-hangzhou.aliyuncs.com/team/"


def config():
    return Config(credential=CredClient(), region_id="cn-hangzhou",
                  endpoint=os.environ["EMULATOR"], protocol="http")


def refused(code, act):
    try:
        act()
    except Exception as error:  # the SDK's own classes
        assert getattr(error, "code", None) == code, (code, error)
    else:
        raise AssertionError(f"{code} was expected")


studio = StudioClient(config())
for instance_type in ("ecs.g7.xlarge", "ml.gu7ef.8xlarge-gu100"):
    request = studio_models.GetSpotPriceHistoryRequest(order="desc", page_size=10, page_number=1)
    answer = studio.get_spot_price_history(instance_type, request).body
    assert answer.total_count >= 1 and answer.request_id, answer.to_map()
    newest = answer.spot_price_history[0]
    assert (newest.instance_type, newest.spot_discount) == (instance_type, 0.3), newest.to_map()
    assert newest.timestamp.endswith("Z") and newest.zone_id, newest.to_map()
far = studio_models.GetSpotPriceHistoryRequest(start_time="2001-01-01T00:00:00Z")
refused("InvalidParameter", lambda: studio.get_spot_price_history("ecs.g7.xlarge", far))
refused("NotFound", lambda: studio.get_spot_price_history(
    "ecs.none", studio_models.GetSpotPriceHistoryRequest()))

workspace = WorkspaceClient(config())
wanted = workspace_models.CreateDatasetRequest(
    name="run42", data_source_type="OSS", property="DIRECTORY", uri=URI, workspace_id="12345",
    labels=[workspace_models.Label(key="team", value="a")])
dataset_id = workspace.create_dataset(wanted).body.dataset_id
refused("InvalidParameter", lambda: workspace.create_dataset(wanted))
dataset = workspace.get_dataset(dataset_id, workspace_models.GetDatasetRequest()).body
assert (dataset.dataset_id, dataset.uri, dataset.name) == (dataset_id, URI, "run42")
assert dataset.latest_version.uri == URI and dataset.labels[0].key == "team", dataset.to_map()
version = workspace.get_dataset_version(
    dataset_id, "v1", workspace_models.GetDatasetVersionRequest()).body
assert (version.version_name, version.uri) == ("v1", URI), version.to_map()
change = workspace_models.UpdateDatasetRequest(description="checkpoints")
assert workspace.update_dataset(dataset_id, change).body.request_id
listed = workspace.list_datasets(workspace_models.ListDatasetsRequest(
    workspace_id="12345", name="RUN", data_source_types="OSS,NAS", page_size=100)).body
assert [one.dataset_id for one in listed.datasets] == [dataset_id], listed.to_map()
assert listed.datasets[0].description == "checkpoints" and listed.total_count == 1
assert workspace.delete_dataset(
    dataset_id, workspace_models.DeleteDatasetRequest()).body.request_id
refused("NotFound",
        lambda: workspace.get_dataset(dataset_id, workspace_models.GetDatasetRequest()))
print("PaiStudio and AIWorkSpace answer")
