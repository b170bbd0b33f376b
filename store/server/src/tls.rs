//! Who may connect over TCP?

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, bail};
use clap::Args;
use rustls::crypto::ring;
use tonic::transport::{Certificate, Identity, Server, ServerTlsConfig};

use crate::cli::ListenAddress;

/// A caller has so long to prove who it is.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// How callers over TCP prove who they are.
#[derive(Debug, Args)]
#[command(next_help_heading = "TLS (for --listen tcp)")]
pub(crate) struct TlsArgs {
    /// The store's certificate, with those between it and its authority, in PEM.
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<PathBuf>,

    /// The certificate's private key, in PEM.
    #[arg(long, value_name = "FILE")]
    tls_key: Option<PathBuf>,

    /// The authority whose certificates callers must show, in PEM. A caller without one gets nothing.
    #[arg(long, value_name = "FILE")]
    tls_client_ca: Option<PathBuf>,

    /// Do without TLS: whoever reaches the port may count, claim, and read stored answers.
    #[arg(long, conflicts_with_all = ["tls_cert", "tls_key", "tls_client_ca"])]
    insecure: bool,
}

/// How a listener tells its callers apart.
#[derive(Debug)]
pub(crate) enum Security {
    /// By the permissions of its socket's file.
    File,
    /// Not at all.
    Insecure,
    /// By their certificates.
    Mutual(Box<Mutual>),
}

#[derive(Debug)]
pub(crate) struct Mutual {
    config: ServerTlsConfig,
    files: String,
}

impl Security {
    /// Reads the files.
    pub(crate) fn of(listen: &ListenAddress, args: &TlsArgs) -> anyhow::Result<Self> {
        let files = (&args.tls_cert, &args.tls_key, &args.tls_client_ca);
        match (listen, files, args.insecure) {
            (ListenAddress::Unix(_), (None, None, None), false) => Ok(Self::File),
            (ListenAddress::Unix(_), _, _) => bail!(
                "--listen unix:PATH: expected neither --tls-cert, --tls-key, --tls-client-ca nor --insecure, which are \
                 for tcp:; who may connect is said by --listen-mode and --listen-group"
            ),
            (ListenAddress::Tcp(_), (None, None, None), true) => Ok(Self::Insecure),
            (ListenAddress::Tcp(_), (Some(cert), Some(key), Some(client_ca)), false) => {
                Mutual::read(cert, key, client_ca).map(|mutual| Self::Mutual(Box::new(mutual)))
            }
            (ListenAddress::Tcp(_), (cert, key, client_ca), _) => {
                let came = [
                    ("--tls-cert", cert.is_some()),
                    ("--tls-key", key.is_some()),
                    ("--tls-client-ca", client_ca.is_some()),
                    ("--insecure", args.insecure),
                ];
                let came: Vec<&str> = came
                    .iter()
                    .filter(|(_, came)| *came)
                    .map(|(flag, _)| *flag)
                    .collect();
                let came = if came.is_empty() {
                    "none of them".to_owned()
                } else {
                    came.join(" and ")
                };
                bail!(
                    "--listen tcp:HOST:PORT: expected --tls-cert, --tls-key and --tls-client-ca, or --insecure to do \
                     without TLS, came {came}"
                )
            }
        }
    }

    /// A server with this security.
    pub(crate) fn apply(self, server: Server) -> anyhow::Result<Server> {
        match self {
            Self::File | Self::Insecure => Ok(server),
            Self::Mutual(mutual) => {
                let Mutual { config, files } = *mutual;
                let server = server.tls_config(config);
                server.with_context(|| format!("cannot use {files}"))
            }
        }
    }

    /// For the log.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::File => "permissions",
            Self::Insecure => "none",
            Self::Mutual(_) => "mutual-tls",
        }
    }
}

impl Mutual {
    fn read(cert: &Path, key: &Path, client_ca: &Path) -> anyhow::Result<Self> {
        let pem = |flag: &str, path: &Path| {
            fs::read(path).with_context(|| format!("{flag}: cannot read {}", path.display()))
        };
        // Another one may be there already; either serves.
        drop(ring::default_provider().install_default());
        let identity = Identity::from_pem(pem("--tls-cert", cert)?, pem("--tls-key", key)?);
        let config = ServerTlsConfig::new()
            .identity(identity)
            .client_ca_root(Certificate::from_pem(pem("--tls-client-ca", client_ca)?))
            .timeout(HANDSHAKE_TIMEOUT);
        let (cert, key, client_ca) = (cert.display(), key.display(), client_ca.display());
        Ok(Self {
            config,
            files: format!("--tls-cert {cert}, --tls-key {key}, --tls-client-ca {client_ca}"),
        })
    }
}
