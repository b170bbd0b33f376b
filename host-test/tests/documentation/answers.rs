//! docs/answers.md has every problem with its status, its whole answer, what a client should do, and no other problem.

use anyhow::Context as _;
use porch_core::http::{Field, Response};
use porch_core::idempotency::kept;
use porch_core::limiter::headers::{self, Standing};
use porch_core::limiter::rule::{Cost, KeyPart, Rule, RuleParts};
use porch_core::limiter::seen::Left;
use porch_core::matching::Match;
use porch_core::problem::Problem;

use crate::page::{Section, blocks, quoted, sections, tables, text};

const PAGE: &str = "docs/answers.md";

/// One of each. A new one does not compile until it has a place here.
const PROBLEMS: [Problem<'static>; 11] = [
    Problem::QuotaExceeded {
        violated: &["per-client"],
        retry_after_s: Some(42),
    },
    Problem::KeyMissing,
    Problem::KeyInvalid {
        detail: "expected 1 to 255 bytes, got none",
    },
    Problem::PrincipalMissing,
    Problem::InFlight,
    Problem::FingerprintMismatch,
    Problem::OutcomeUnknown { status: 500 },
    Problem::ResponseNotRetained {
        original_status: 201,
    },
    Problem::RequestTooLarge { limit: 1_048_576 },
    Problem::StoreUnavailable,
    Problem::Overloaded,
];

const fn place(problem: &Problem<'_>) -> usize {
    match problem {
        Problem::QuotaExceeded { .. } => 0,
        Problem::KeyMissing => 1,
        Problem::KeyInvalid { .. } => 2,
        Problem::PrincipalMissing => 3,
        Problem::InFlight => 4,
        Problem::FingerprintMismatch => 5,
        Problem::OutcomeUnknown { .. } => 6,
        Problem::ResponseNotRetained { .. } => 7,
        Problem::RequestTooLarge { .. } => 8,
        Problem::StoreUnavailable => 9,
        Problem::Overloaded => 10,
    }
}

fn section<'a>(sections: &'a [Section], problem: &Problem<'_>) -> anyhow::Result<&'a Section> {
    let named = |section: &&Section| {
        quoted(&section.heading)
            .iter()
            .any(|name| name == problem.name())
    };
    sections
        .iter()
        .find(named)
        .with_context(|| format!("{PAGE}: no section on {}", problem.name()))
}

#[test]
fn every_problem_stands_in_the_page() -> anyhow::Result<()> {
    let page = text(PAGE)?;
    let sections = sections(&page);
    for (index, problem) in PROBLEMS.iter().enumerate() {
        assert_eq!(place(problem), index);
        let section = section(&sections, problem)?;
        let status = problem.status().to_string();
        assert!(
            section.heading.starts_with(&status),
            "{}: expected {status}",
            section.heading
        );
        for label in [
            "**When**",
            "**Did it run?**",
            "**What to do**",
            &format!("`{}`", problem.details()),
        ] {
            assert!(
                section.body.contains(label),
                "{}: expected {label}",
                section.heading
            );
        }
        let grpc = problem
            .grpc_status()
            .map(|status| format!("`grpc-status: {status}`"));
        let told = quoted(&section.body)
            .into_iter()
            .find(|text| text.starts_with("grpc-status"))
            .map(|text| format!("`{text}`"));
        assert_eq!(
            told,
            grpc.filter(|_| *problem != Problem::Overloaded),
            "{}",
            section.heading
        );
        let block = blocks(&section.body, "http");
        assert_eq!(block, [written(&answer(problem))?], "{}", section.heading);
    }
    Ok(())
}

#[test]
fn no_other_problem_stands_there() -> anyhow::Result<()> {
    let page = text(PAGE)?;
    let names: Vec<&str> = PROBLEMS.iter().map(Problem::name).collect();
    for name in page.split("urn:porch:problem:").skip(1) {
        let name: String = name
            .chars()
            .take_while(|letter| letter.is_ascii_lowercase() || *letter == '-')
            .collect();
        assert!(name.is_empty() || names.contains(&name.as_str()), "{name}");
    }
    let table = tables(&page).into_iter().next().context("no table")?;
    let rows: Vec<String> = table.rows.iter().flat_map(|row| quoted(&row[1])).collect();
    assert_eq!(rows, names);
    for (row, problem) in table.rows.iter().zip(&PROBLEMS) {
        assert!(row[0].starts_with(&problem.status().to_string()), "{row:?}");
        let waits = row[3].contains("Retry-After");
        assert_eq!(waits, problem.retry_after_s().is_some(), "{row:?}");
    }
    Ok(())
}

/// What a client gets. A refusal by a limit also says where it stands.
fn answer(problem: &Problem<'_>) -> Response {
    let mut response = problem.response();
    if matches!(problem, Problem::QuotaExceeded { .. }) {
        let rule = Rule::new("shop", per_client());
        let left = Some(Left {
            remaining: 0,
            reset_ms: 42_000,
        });
        let standing = Standing {
            rule: &rule,
            left,
            cost: 1,
            refused: true,
        };
        response.fields.extend(headers::fields(&[standing], true));
    }
    response
}

fn per_client() -> RuleParts {
    RuleParts {
        name: "per-client".into(),
        quota: 100,
        window_s: 60,
        reserve: 10,
        cost: Cost {
            default: 1,
            header: None,
        },
        shadow: false,
        refund_on: vec![],
        matching: Match {
            path_prefix: b"/".to_vec(),
            methods: None,
            authorities: None,
            headers: vec![],
            named_by_route: false,
        },
        key: vec![KeyPart::ClientAddress],
    }
}

fn written(response: &Response) -> anyhow::Result<String> {
    let reason = match response.status {
        400 => "Bad Request",
        409 => "Conflict",
        413 => "Content Too Large",
        422 => "Unprocessable Content",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        503 => "Service Unavailable",
        other => anyhow::bail!("what is {other} called?"),
    };
    let mut lines = vec![format!("HTTP/1.1 {} {reason}", response.status)];
    for field in &response.fields {
        lines.push(format!(
            "{}: {}",
            str::from_utf8(&field.name)?,
            str::from_utf8(&field.value)?
        ));
    }
    lines.push(String::new());
    lines.push(String::from_utf8(response.body.clone())?);
    Ok(lines.join("\n"))
}

#[test]
fn what_is_not_replayed_is_named() -> anyhow::Result<()> {
    let page = text(PAGE)?;
    let sections = sections(&page);
    let section = sections
        .iter()
        .find(|section| section.heading == "Replays")
        .context("no section")?;
    let block = blocks(&section.body, "http").pop().context("no example")?;
    assert!(block.contains(&format!("\n{}: true\n", kept::REPLAYED)));
    let (_, prose) = section.body.rsplit_once("```\n").context("no prose")?;
    let prose = prose.split("Only answers").next().unwrap_or_default();
    let mut tried = 0;
    for name in quoted(prose)
        .into_iter()
        .filter(|name| !name.ends_with('-') && *name != "RateLimit")
    {
        let line = Field::received(name.clone().into_bytes(), b"x".to_vec());
        assert_eq!(
            kept::replayed(&kept::first_answer(vec![line]), false),
            [],
            "{name} is replayed"
        );
        tried += 1;
    }
    assert!(tried >= 18, "{tried} are named");
    let kept_line = vec![Field::received(b"location".to_vec(), b"/orders/1".to_vec())];
    assert_eq!(
        kept::replayed(&kept::first_answer(kept_line.clone()), false),
        kept_line
    );
    Ok(())
}
