//! Where the built parts are.

use std::env;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context as _, bail};

/// Paths of everything that a stack runs.
#[derive(Clone, Debug)]
pub struct Artifacts {
    /// Envoy: `ENVOY`, else the one that scripts/setup installs.
    pub envoy: PathBuf,
    /// The module: `PORCH_WASM`, else dist/porch.wasm.
    pub wasm: PathBuf,
    /// The store: `PORCH_STORE`, else the newest build in target/.
    pub store: PathBuf,
    /// This crate's binary: `PORCH_HOST`, else beside the running executable.
    pub host: PathBuf,
}

impl Artifacts {
    /// Finds all of them.
    ///
    /// # Errors
    /// When one is missing; the error says which, where it was looked for, and what to run.
    pub fn find() -> anyhow::Result<Self> {
        Ok(Self {
            envoy: Self::find_envoy()?,
            wasm: find_wasm()?,
            store: find_store()?,
            host: Self::find_host()?,
        })
    }

    /// Finds Envoy alone.
    ///
    /// # Errors
    /// As [`Artifacts::find`].
    pub fn find_envoy() -> anyhow::Result<PathBuf> {
        chosen("ENVOY", &[project_root().join(".envoy/bin/envoy")])
    }

    /// Finds this crate's binary alone.
    ///
    /// # Errors
    /// As [`Artifacts::find`].
    pub fn find_host() -> anyhow::Result<PathBuf> {
        chosen("PORCH_HOST", &beside_this_executable("porch-host")?)
    }
}

fn find_wasm() -> anyhow::Result<PathBuf> {
    chosen("PORCH_WASM", &[project_root().join("dist/porch.wasm")])
}

fn find_store() -> anyhow::Result<PathBuf> {
    let built = project_root().join("target");
    chosen(
        "PORCH_STORE",
        &[
            built.join("debug/porch-store"),
            built.join("release/porch-store"),
        ],
    )
}

/// The work tree that this crate was built in.
pub(super) fn project_root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

/// The file that the variable names, else the newest of the candidates.
fn chosen(variable: &str, candidates: &[PathBuf]) -> anyhow::Result<PathBuf> {
    if let Some(named) = env::var_os(variable).filter(|named| !named.is_empty()) {
        // A test does not run in the folder that it was started from; a path is relative to the project's.
        let named = project_root().join(named);
        if !named.is_file() {
            bail!(
                "{variable}: expected a file, and there is none at {}",
                named.display()
            );
        }
        return Ok(named);
    }
    let written = |path: &Path| {
        path.metadata()
            .and_then(|metadata| metadata.modified())
            .unwrap_or(SystemTime::UNIX_EPOCH)
    };
    candidates.iter().filter(|path| path.is_file()).max_by_key(|path| written(path)).cloned().with_context(|| {
        let looked: Vec<_> = candidates.iter().map(|path| path.display().to_string()).collect();
        format!(
            "nothing at {}; run `scripts/setup && scripts/build`, or name the file in {variable}",
            looked.join(" or ")
        )
    })
}

/// A binary runs from target/PROFILE, a test from target/PROFILE/deps.
fn beside_this_executable(name: &str) -> anyhow::Result<Vec<PathBuf>> {
    let executable = env::current_exe().context("this executable has no path")?;
    Ok(executable
        .ancestors()
        .skip(1)
        .take(2)
        .map(|directory| directory.join(name))
        .collect())
}
