//! wrk as a process: one run of one variant.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};

use super::variant::{Expected, Variant};

/// What one run measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Figures {
    pub(super) requests_per_s: f64,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
    /// CPU time of the variant's Envoy for one request.
    pub(super) envoy_cpu_us: f64,
}

/// How long a variant warms up: time enough to open every bucket on a slow disk.
const WARM_UP: Duration = Duration::from_secs(3);

/// Loads a variant and looks at nothing.
pub(super) fn warm_up(variant: &Variant, connections: u32) -> anyhow::Result<()> {
    load(variant, connections, WARM_UP).map(drop)
}

/// Loads a variant on so many connections for so long.
pub(super) fn run(variant: &Variant, connections: u32, time: Duration) -> anyhow::Result<Figures> {
    let before = cpu_us(variant.envoy_pid)?;
    let text = load(variant, connections, time)?;
    let cpu = cpu_us(variant.envoy_pid)? - before;
    read(&text, variant, cpu).with_context(|| format!("{}: {text}", variant.name))
}

fn load(variant: &Variant, connections: u32, time: Duration) -> anyhow::Result<String> {
    let output = Command::new("wrk")
        .args(["-t1", "--latency"])
        .arg(format!("-c{connections}"))
        .arg(format!("-d{}s", time.as_secs().max(1)))
        .arg("-s")
        .arg(&variant.script)
        .arg(format!("http://{}{}", variant.address, variant.path))
        .output()
        .context("wrk: expected it to be installed; scripts/setup does that")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(
        output.status.success(),
        "wrk failed on {}: {text}",
        variant.name
    );
    Ok(text)
}

fn read(text: &str, variant: &Variant, cpu_us: f64) -> anyhow::Result<Figures> {
    let after = |label: &str| {
        let line = text
            .lines()
            .find_map(|line| line.trim_start().strip_prefix(label));
        line.map(|rest| rest.trim_start_matches([':', ' ', '\t']))
    };
    let requests = text.lines().find(|line| line.contains(" requests in "));
    let requests: f64 = requests
        .and_then(|line| line.split_whitespace().next())
        .context("requests")?
        .parse()?;
    ensure!(requests > 0.0, "no request was answered");
    let failed: f64 = match after("Non-2xx or 3xx responses") {
        Some(number) => number.trim().parse()?,
        None => 0.0,
    };
    match variant.expected {
        Expected::Success => ensure!(
            failed < 1.0,
            "expected 2xx, and {failed} of {requests} were not"
        ),
        Expected::Refusal => ensure!(
            failed >= requests,
            "expected refusals, and only {failed} of {requests} were"
        ),
    }
    ensure!(
        after("Socket errors").is_none(),
        "expected no socket errors"
    );
    Ok(Figures {
        requests_per_s: after("Requests/sec")
            .context("Requests/sec")?
            .trim()
            .parse()?,
        p50_us: microseconds(after("50%").context("50%")?)?,
        p99_us: microseconds(after("99%").context("99%")?)?,
        envoy_cpu_us: cpu_us / requests,
    })
}

/// wrk's durations: `86.00us`, `1.20ms`, `1.00s`.
fn microseconds(text: &str) -> anyhow::Result<f64> {
    let text = text.trim();
    for (unit, factor) in [("us", 1.0), ("ms", 1_000.0), ("s", 1_000_000.0)] {
        if let Some(number) = text.strip_suffix(unit)
            && let Ok(number) = number.parse::<f64>()
        {
            return Ok(number * factor);
        }
    }
    bail!("expected a duration, got {text:?}")
}

/// CPU time that a process has used, in microseconds. `/proc/PID/stat` counts in hundredths of a second.
fn cpu_us(pid: u32) -> anyhow::Result<f64> {
    let path = Path::new("/proc").join(pid.to_string()).join("stat");
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let (_, fields) = text
        .rsplit_once(") ")
        .context("expected a process's stat")?;
    let fields: Vec<&str> = fields.split(' ').collect();
    let ticks = |index: usize| -> anyhow::Result<f64> {
        Ok(fields.get(index).context("expected more fields")?.parse()?)
    };
    Ok((ticks(11)? + ticks(12)?) * 10_000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_in_every_unit() {
        for (text, expected) in [
            ("86.00us", 86.0),
            ("1.20ms", 1_200.0),
            (" 1.00s ", 1_000_000.0),
        ] {
            let read = microseconds(text).expect("a duration");
            assert!((read - expected).abs() < 0.001, "{text}: {read}");
        }
        microseconds("12").expect_err("no unit");
    }
}
