//! How does a listener come to be?

use std::{
    fmt, fs, io,
    net::{self, SocketAddr},
    os::unix::{
        fs::{FileTypeExt as _, PermissionsExt as _, chown},
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
};

use anyhow::{Context as _, anyhow, bail};
use nix::unistd::{Gid, Group};
use rustix::{fs::Mode, process::umask};

/// Who may connect to a socket's file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Permissions<'a> {
    /// Its mode.
    pub(crate) mode: u32,
    /// Its group, by name or number; this process' when none is named.
    pub(crate) group: Option<&'a str>,
}

/// A listening socket that is removed in the end.
#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) path: PathBuf,
    pub(crate) listener: UnixListener,
}

/// Listens on a path. The file of a process that died is replaced; a live one is refused.
pub(crate) fn unix(path: &Path, permissions: Permissions<'_>) -> anyhow::Result<Socket> {
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
    let group = permissions.group.map(group).transpose()?;
    // Nobody connects between the bind and the chmod: until then the file is for its owner alone.
    let before = umask(Mode::RWXG | Mode::RWXO);
    let bound = UnixListener::bind(path);
    umask(before);
    let listener = bound.with_context(|| format!("{shown}: cannot listen there"))?;
    if let Some(group) = group {
        chown(path, None, Some(group.as_raw()))
            .with_context(|| format!("{shown}: cannot give it to group {group}"))?;
    }
    let mode = permissions.mode;
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

fn group(named: &str) -> anyhow::Result<Gid> {
    if let Ok(number) = named.parse() {
        return Ok(Gid::from_raw(number));
    }
    match Group::from_name(named) {
        Ok(Some(group)) => Ok(group.gid),
        Ok(None) => Err(anyhow!(
            "--listen-group: expected a group's name or number, came `{named}`, which this machine does not know"
        )),
        Err(error) => Err(error).with_context(|| format!("--listen-group: cannot look up {named}")),
    }
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

/// A listening port.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) address: SocketAddr,
    listener: net::TcpListener,
}

/// Listens on `HOST:PORT`; port 0 is any that is free.
pub(crate) fn tcp(address: &str) -> anyhow::Result<Port> {
    let listen = || {
        let listener = net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok::<_, io::Error>(Port { address, listener })
    };
    listen().with_context(|| format!("{address}: cannot listen there"))
}

impl Port {
    /// The listener, for the runtime.
    pub(crate) fn into_tokio(self) -> anyhow::Result<tokio::net::TcpListener> {
        tokio::net::TcpListener::from_std(self.listener)
            .with_context(|| format!("{}: cannot listen there", self.address))
    }
}

/// Where filters connect.
#[derive(Debug)]
pub(crate) enum Listener {
    Unix(Socket),
    Tcp(Port),
}

impl fmt::Display for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(socket) => write!(f, "unix:{}", socket.path.display()),
            Self::Tcp(port) => write!(f, "tcp:{}", port.address),
        }
    }
}
