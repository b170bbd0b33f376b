//! The demo as a user runs it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use porch_host::harness::{Artifacts, PATIENCE, eventually};
use rustix::process::{Pid, Signal, kill_process};

#[test]
fn demo_holds_in_every_step() -> anyhow::Result<()> {
    let output = Command::new(Artifacts::find_host()?).arg("demo").output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let (_, summary) = said.split_once("Summary").expect("a summary");
    assert_eq!(summary.matches("ok  ").count(), 6, "{summary}");
    Ok(())
}

#[test]
fn an_interrupted_demo_leaves_nothing_behind() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let said = directory.path().join("said");
    let mut demo = Command::new(Artifacts::find_host()?)
        .args(["demo", "--keep"])
        .env("TMPDIR", directory.path())
        .stdout(fs::File::create(&said)?)
        .stdin(Stdio::null())
        .spawn()?;
    let ready = || {
        Ok(fs::read_to_string(&said)?
            .contains("Still running")
            .then_some(()))
    };
    eventually("the demo is ready", PATIENCE * 2, ready)?;
    let children = children_of(&demo)?;
    assert_eq!(children.len(), 3, "Envoy, store and service: {children:?}");

    let pid = Pid::from_raw(i32::try_from(demo.id())?).expect("a process id");
    kill_process(pid, Signal::INT)?;
    let status = eventually("the demo ends", PATIENCE, || Ok(demo.try_wait()?))?;
    assert!(status.success(), "{status}");
    let running = |path: &PathBuf| {
        fs::read_to_string(path.join("cmdline")).is_ok_and(|line| !line.is_empty())
    };
    eventually("its processes end", PATIENCE, || {
        Ok((!children.iter().any(running)).then_some(()))
    })?;
    let left: Vec<_> = fs::read_dir(directory.path())?
        .filter_map(Result::ok)
        .map(|file| file.file_name())
        .collect();
    assert_eq!(left, ["said"], "its directory is gone");
    Ok(())
}

/// Their folders in /proc.
fn children_of(process: &Child) -> anyhow::Result<Vec<PathBuf>> {
    let parent = format!("PPid:\t{}\n", process.id());
    let is_child = |path: &Path| {
        fs::read_to_string(path.join("status")).is_ok_and(|status| status.contains(&parent))
    };
    let all = fs::read_dir("/proc")?
        .filter_map(Result::ok)
        .map(|entry| entry.path());
    Ok(all.filter(|path| is_child(path)).collect())
}
