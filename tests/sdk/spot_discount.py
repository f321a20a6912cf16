#!/usr/bin/env python3

import os

from alibabacloud_tea_openapi.models import Config
from alibabacloud_credentials.client import Client as CredClient

from alibabacloud_pai_dlc20201203.client import Client as DLCClient
from alibabacloud_pai_dlc20201203.models import CreateJobRequest

region_id = 'cn-hangzhou'  # DLC ジョブが存在するリージョンの ID (例: cn-hangzhou)
cred = CredClient()
workspace_id = '12345'  # DLC ジョブが属するワークスペースの ID

dlc_client = DLCClient(
    Config(credential=cred,
           region_id=region_id,
           endpoint=os.environ['EMULATOR'],
           protocol='http'))

create_job_resp = dlc_client.create_job(CreateJobRequest().from_map({
    'WorkspaceId': workspace_id,
    'DisplayName': 'sample-spot-job',
    'JobType': 'PyTorchJob',
    'JobSpecs': [
        {
            "Type": "Worker",
            "Image": "dsw-registry-vpc.cn-hangzhou.cr.aliyuncs.com/pai/pytorch-training:1.12-cpu-py39-ubuntu20.04",
            "PodCount": 1,
            "EcsSpec": 'ecs.g7.xlarge',
            "SpotSpec": {
                "SpotStrategy": "SpotWithPriceLimit",
                "SpotDiscountLimit": 0.4,
            }
        },
    ],
    'UserVpc': {
        "VpcId": "vpc-0jlq8l7qech3m2ta2abcd",
        "SwitchId": "vsw-0jlc46eg4k3pivwpz8abcd",
        "SecurityGroupId": "sg-0jl4bd9wwh5auei9abcd",
    },
    "UserCommand": "echo 'Hello World' && ls -R /mnt/data/ && sleep 30 && echo 'DONE'",
}))
job_id = create_job_resp.body.job_id
print(f'jobId is {job_id}')
