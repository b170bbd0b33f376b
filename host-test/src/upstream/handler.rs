//! What a request does: its row, and the answer to it. No I/O, so that a model may stand in for the service.

use std::time::Duration;

use super::answer::{self, Answer};
use super::wish::{Cut, Wish};

/// A request that has come whole.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The method.
    pub method: &'a str,
    /// The path, without the query.
    pub path: &'a str,
    /// The query, without its question mark.
    pub query: &'a str,
    /// The body.
    pub body: &'a [u8],
}

/// The service's table.
pub trait Table {
    /// Commits one row and tells its id.
    ///
    /// # Errors
    /// A sentence, when that fails.
    fn insert(&mut self, request: Request<'_>) -> Result<i64, String>;

    /// How many rows there are; with a path, how many came by it.
    ///
    /// # Errors
    /// A sentence, when that fails.
    fn count(&self, path: Option<&str>) -> Result<i64, String>;
}

/// What comes of a request, after a time.
#[derive(Clone, Debug)]
pub struct Handled {
    /// How long it takes, its row being in.
    pub delay: Duration,
    /// What the peer gets.
    pub outcome: Outcome,
}

/// What the peer gets.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// An answer.
    Answer(Answer),
    /// No byte: the connection is reset.
    Reset,
    /// Bytes that are no HTTP.
    Junk,
}

/// Carries a request out.
pub fn handle(request: Request<'_>, table: &mut impl Table) -> Handled {
    let at_once = |answer| Handled {
        delay: Duration::ZERO,
        outcome: Outcome::Answer(answer),
    };
    match (request.method, request.path) {
        ("GET", "/orders/count") => {
            let path = request.query.strip_prefix("path=");
            return at_once(
                table
                    .count(path)
                    .map_or_else(|error| failed(&error), answer::count),
            );
        }
        ("GET" | "HEAD", _) => return at_once(answer::hello()),
        ("POST" | "PUT" | "PATCH" | "DELETE", path) if is_order(path) => {}
        ("POST" | "PUT" | "PATCH" | "DELETE", _) => {
            return at_once(answer::refused(404, "expected /orders or a path below it"));
        }
        _ => return at_once(answer::refused(405, "no such method here")),
    }
    let wish = match Wish::read(request.query) {
        Ok(wish) => wish,
        Err(sentence) => return at_once(answer::refused(400, &sentence)),
    };
    let id = match table.insert(request) {
        Ok(id) => id,
        Err(error) => return at_once(failed(&error)),
    };
    Handled {
        delay: wish.delay,
        outcome: match wish.cut {
            Some(Cut::Reset) => Outcome::Reset,
            Some(Cut::Junk) => Outcome::Junk,
            None => Outcome::Answer(answer::inserted(id, request.body, &wish)),
        },
    }
}

fn is_order(path: &str) -> bool {
    path.strip_prefix("/orders")
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn failed(error: &str) -> Answer {
    answer::refused(500, &format!("the database failed: {error}"))
}
