//! How does a socket come to be?

use std::{
    fs, io,
    os::unix::{
        fs::{FileTypeExt as _, PermissionsExt as _},
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use rustix::{fs::Mode, process::umask};

/// A listening socket that is removed in the end.
#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) path: PathBuf,
    pub(crate) listener: UnixListener,
}

/// Listens on a path. The file of a process that died is replaced; a live one is refused.
pub(crate) fn unix(path: &Path, mode: u32) -> anyhow::Result<Socket> {
    let shown = path.display();
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error).with_context(|| format!("{shown}: cannot look at it")),
        Ok(metadata) if !metadata.file_type().is_socket() => {
            bail!("{shown}: expected a socket or nothing, found another file; name another path");
        }
        Ok(_) => match UnixStream::connect(path) {
            Ok(_) => bail!("{shown}: another process listens there; stop it, or name another path"),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                fs::remove_file(path)
                    .with_context(|| format!("{shown}: cannot remove the dead socket"))?;
            }
            Err(error) => {
                return Err(error)
                    .with_context(|| format!("{shown}: cannot tell whose socket it is"));
            }
        },
    }
    // Nobody connects between the bind and the chmod: until then the file is for its owner alone.
    let before = umask(Mode::RWXG | Mode::RWXO);
    let bound = UnixListener::bind(path);
    umask(before);
    let listener = bound.with_context(|| format!("{shown}: cannot listen there"))?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
        .with_context(|| format!("{shown}: cannot set its mode to {mode:o}"))?;
    listener
        .set_nonblocking(true)
        .with_context(|| format!("{shown}: cannot make it non-blocking"))?;
    Ok(Socket {
        path: path.to_owned(),
        listener,
    })
}

impl Socket {
    /// The listener, for the runtime, and the path.
    pub(crate) fn into_tokio(self) -> anyhow::Result<(tokio::net::UnixListener, Guard)> {
        let listener = tokio::net::UnixListener::from_std(self.listener)
            .with_context(|| format!("{}: cannot listen there", self.path.display()))?;
        Ok((listener, Guard(self.path)))
    }
}

/// Removes the socket's file when dropped.
#[derive(Debug)]
pub(crate) struct Guard(PathBuf);

impl Drop for Guard {
    fn drop(&mut self) {
        // Whoever starts next replaces it.
        drop(fs::remove_file(&self.0));
    }
}
