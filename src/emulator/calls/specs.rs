//! ListEcsSpecs: the instance types that are offered, with the stock and price of the moment.

use super::query::{Order, wrong};
use super::{Answered, Request, object};
use crate::emulator::job::Job;
use crate::emulator::world::World;
use serde_json::{Value, json};

/// Instance types that are offered: name, CPU cores, GiB, GPUs, GPU type, GiB a GPU, resource type.
const SPECS: [(&str, u32, u32, u32, &str, u32, &str); 5] = [
    ("ecs.g7.xlarge", 4, 16, 0, "", 0, "ECS"),
    ("ecs.gn7i-c8g1.2xlarge", 8, 30, 1, "NVIDIA A10", 24, "ECS"),
    ("ecs.gn7e-c16g1.4xlarge", 16, 125, 1, "NVIDIA A100", 80, "ECS"),
    ("ecs.gn6v-c8g1.2xlarge", 8, 32, 1, "NVIDIA V100", 16, "ECS"),
    ("ml.gu7ef.8xlarge-gu100", 32, 256, 1, "GU100", 96, "Lingjun"),
];

/// The resource type of an instance type that is offered.
pub(super) fn resource_type(name: &str) -> Option<&'static str> {
    SPECS.iter().find(|(offered, ..)| *offered == name).map(|spec| spec.6)
}

/// What a job asks for in all: CPU cores, GiB, GPUs. Types that are not offered count as nothing.
pub(super) fn requested(job: &Job) -> [u64; 3] {
    let specs = job.submission.body.get("JobSpecs").and_then(Value::as_array);
    let mut all = [0_u64; 3];
    for spec in specs.into_iter().flatten() {
        let pods = spec["PodCount"].as_u64().unwrap_or(1);
        let wanted = spec["EcsSpec"].as_str();
        let offered = SPECS.iter().find(|(name, ..)| wanted == Some(*name));
        let each = match offered {
            Some((_, cpu, memory, gpus, ..)) => [*cpu, *memory, *gpus].map(u64::from),
            None => ["CPU", "Memory", "GPU"].map(|key| {
                let text = spec["ResourceConfig"][key].as_str().unwrap_or_default();
                text.trim_end_matches("Gi").parse().unwrap_or(0)
            }),
        };
        for (sum, one) in all.iter_mut().zip(each) {
            *sum = sum.saturating_add(one.saturating_mul(pods));
        }
    }
    all
}

pub(super) fn list(world: &mut World, request: &Request<'_>) -> Answered {
    let query = &request.query;
    if query.text("SortBy").is_some() {
        // The real one refuses every documented value.
        return Err(wrong("SortBy: cannot be used"));
    }
    let accelerator = query.word("AcceleratorType", &["CPU", "GPU"])?;
    let resource = query.word("ResourceType", &["ECS", "Lingjun"])?;
    let named = query.list("InstanceTypes");
    let quote = world.market.quote(request.now.at);
    let mut specs: Vec<Value> = SPECS
        .iter()
        .map(|(name, cpu, memory, gpus, gpu_type, gpu_memory, resource_type)| {
            json!({
                "InstanceType": name,
                "AcceleratorType": if *gpus == 0 { "CPU" } else { "GPU" },
                "Cpu": cpu, "Memory": memory, "Gpu": gpus, "GpuType": gpu_type,
                "GpuMemory": gpu_memory, "ResourceType": resource_type, "IsAvailable": true,
                "DefaultGPUDriver": "", "SupportedGPUDrivers": [],
                "PaymentTypes": ["PostPaid", "Spot"],
                // Only WithStock is known; the other word is a guess.
                "SpotStockStatus": if quote.stock { "WithStock" } else { "NoStock" },
                "NonProtectSpotDiscount": quote.discount,
            })
        })
        .filter(|spec| {
            accelerator.is_none_or(|wanted| spec["AcceleratorType"] == wanted)
                && resource.is_none_or(|wanted| spec["ResourceType"] == wanted)
                && named
                    .as_ref()
                    .is_none_or(|names| names.iter().any(|name| spec["InstanceType"] == *name))
        })
        .collect();
    if query.order(Order::Ascending)? == Order::Descending {
        specs.reverse();
    }
    let (specs, total) = query.page()?.cut(specs);
    Ok(object(json!({"EcsSpecs": specs, "TotalCount": total})))
}
