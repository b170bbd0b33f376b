//! What becomes of a data directory or a socket that cannot be used? One line, and nothing is lost.

use std::{
    fs::{self, File},
    io::{Seek as _, SeekFrom, Write as _},
    os::unix::{fs::PermissionsExt as _, net::UnixListener},
};

use crate::{client::hit, process::Place};

/// A place whose store has counted something and is gone.
async fn used() -> anyhow::Result<Place> {
    let place = Place::new()?;
    let store = place.start()?;
    let mut client = place.connect().await?;
    for bucket in 0..200 {
        client.admit(vec![hit(bucket, 10, 1)]).await?;
    }
    store.terminate()?;
    Ok(place)
}

/// Exit code 1 and one line that names the file and says what was found.
fn assert_refused(place: &Place, file: &str, found: &str) -> anyhow::Result<()> {
    let (status, told) = place.refused()?;
    assert_eq!(status.code(), Some(1), "{told}");
    assert_eq!(told.lines().count(), 1, "{told}");
    assert!(
        told.contains(file) && told.contains(found),
        "expected {file} and {found}: {told}"
    );
    Ok(())
}

#[tokio::test]
async fn a_second_store_is_refused() -> anyhow::Result<()> {
    let place = Place::new()?;
    let _store = place.start()?;
    assert_refused(&place, "porch.lock", "locked by another process")
}

#[tokio::test]
async fn data_that_is_gone_is_not_replaced_by_an_empty_file() -> anyhow::Result<()> {
    let place = used().await?;
    let data = place.data().join("data.mdb");
    let kept = fs::read(&data)?;
    fs::write(&data, [])?;
    assert_refused(&place, "data.mdb", "0 bytes")?;
    fs::remove_file(&data)?;
    assert_refused(&place, "data.mdb", "missing")?;
    // Nothing was made in its place, so putting it back is enough.
    fs::write(&data, kept)?;
    let _store = place.start()?;
    let mut client = place.connect().await?;
    assert_eq!(
        client.admit(vec![hit(7, 10, 1)]).await?.verdict[0].remaining,
        8
    );
    Ok(())
}

#[tokio::test]
async fn a_truncated_file_is_told_and_does_not_end_in_a_fault() -> anyhow::Result<()> {
    let place = used().await?;
    let data = place.data().join("data.mdb");
    let kept = fs::read(&data)?;
    let pages = kept.len() / 4_096;
    for page in 1..pages {
        fs::write(&data, &kept[..page * 4_096])?;
        let (status, told) = place.refused()?;
        assert_eq!(status.code(), Some(1), "{page} of {pages} pages: {told}");
        assert_eq!(told.lines().count(), 1, "{told}");
        assert!(
            told.contains("truncated") || told.contains("ends before"),
            "{told}"
        );
    }
    fs::write(&data, kept)?;
    place.start()?.terminate()
}

#[tokio::test]
async fn a_damaged_page_is_told_and_does_not_end_in_a_fault() -> anyhow::Result<()> {
    let place = used().await?;
    let data = place.data().join("data.mdb");
    let kept = fs::read(&data)?;
    let key = [7; 32];
    let has_key = |page: &[u8]| page.windows(key.len()).any(|bytes| bytes == key);
    for noise in [0, 0xFF] {
        let mut bytes = kept.clone();
        // Some of them are pages of yesterday.
        for page in bytes.chunks_mut(4_096).filter(|page| has_key(page)) {
            page.fill(noise);
        }
        fs::write(&data, bytes)?;
        assert_refused(&place, "data.mdb", "damaged")?;
    }
    // Nothing was changed by looking.
    fs::write(&data, kept)?;
    place.start()?.terminate()
}

#[tokio::test]
async fn garbage_is_told() -> anyhow::Result<()> {
    let place = used().await?;
    let data = place.data().join("data.mdb");
    let mut file = File::options().write(true).open(&data)?;
    file.seek(SeekFrom::Start(4_096))?;
    file.write_all(&[0; 4_096])?;
    assert_refused(&place, "data.mdb", "not a data file")?;
    fs::write(&data, b"hello".repeat(10_000))?;
    assert_refused(&place, "data.mdb", "not a data file")
}

#[tokio::test]
async fn a_directory_that_cannot_be_made_is_told() -> anyhow::Result<()> {
    let place = Place::new()?;
    fs::write(place.data(), b"a file")?;
    assert_refused(&place, "/data", "cannot make the directory")
}

#[tokio::test]
async fn a_dead_socket_is_replaced_and_a_live_one_is_not() -> anyhow::Result<()> {
    let place = Place::new()?;
    place.start()?.kill()?;
    assert!(place.socket().exists(), "a killed store leaves its socket");
    place.start()?.terminate()?;
    assert!(!place.socket().exists(), "a stopped one does not");

    let listener = UnixListener::bind(place.socket())?;
    assert_refused(&place, "store.sock", "another process listens there")?;
    drop(listener);
    place.start()?.terminate()?;

    fs::write(place.socket(), b"mine")?;
    assert_refused(&place, "store.sock", "another file")?;
    assert_eq!(fs::read(place.socket())?, b"mine");
    Ok(())
}

#[tokio::test]
async fn sockets_have_their_modes() -> anyhow::Result<()> {
    let place = Place::with(&["--listen-mode", "660"])?;
    let _store = place.start()?;
    let mode = |path| Ok::<_, std::io::Error>(fs::metadata(path)?.permissions().mode() & 0o777);
    assert_eq!(mode(place.socket())?, 0o660);
    assert_eq!(mode(place.data().join("admin.sock"))?, 0o600);
    assert_eq!(mode(place.data())?, 0o700);
    Ok(())
}
