//! Where each case of the conformance list is shown. The list itself is not ours: here are its ids, and what a scenario
//! does not show.

use std::collections::BTreeSet;
use std::path::Path;

use crate::all;

/// Every id of the list.
const CASES: &str = "
    I01 I02 I03 I04 I05 I07 I08 I09 I10 I13 I14 I16 I18 I19 I20 I21 I22 I23 I24 I25 I26 I27 I29 I30 I31 I33 I34 I35
    I36 I37 I40 I42 I43 I44 I45 I46 I47 I48 I50 I51 I52 I53 I54 I56 I57 I58 I61 I62 I63 I64 I66 I68 I69 I70 I71 I72
    I73 I76 I77 I78 I80 I81
    L01 L02 L05 L06 L08 L09 L10 L11 L12 L13 L14 L16 L17 L19 L20 L21 L22 L24 L25 L27 L28 L29 L30 L31 L32 L34 L37 L39
    X01 X02 X03 X05";

/// A test that shows a case, beside the scenarios or in their place.
struct Elsewhere {
    case: &'static str,
    file: &'static str,
    test: &'static str,
    /// Why it is no scenario, or what it adds to one.
    why: &'static str,
}

const fn at(
    case: &'static str,
    file: &'static str,
    test: &'static str,
    why: &'static str,
) -> Elsewhere {
    Elsewhere {
        case,
        file,
        test,
        why,
    }
}

const ACCEPTANCE: &str = "host-test/tests/acceptance";
const ENGINE: &str = "store/engine";
const CORE: &str = "plugin/core/src";
const PARALLEL: &str = "a hundred clients at once, over two workers";
const PROCESSES: &str = "processes end and start again";
const INSIDE: &str = "what is on the store's disk is changed, or its clock";

#[rustfmt::skip]
const ELSEWHERE: &[Elsewhere] = &[
    at("I18", "acceptance/scope.rs", "no_key_reaches_a_log_or_the_disk", "reads all files of a run"),
    at("I36", "acceptance/idempotency.rs", "two_at_once_one_executes", PARALLEL),
    at("I40", "acceptance/outage.rs", "a_claim_whose_reply_was_lost_runs_once", PROCESSES),
    at("I46", "acceptance/gone.rs", "without_upstream_nothing_is_used_up", "the service is not there"),
    at("I48", "acceptance/retries.rs", "route_retries_never_repeat_a_keyed_request", "detached; forwarded is a scenario"),
    at("I68", "acceptance/outage.rs", "store_down", PROCESSES),
    at("I69", "acceptance/kills.rs", "envoy_killed_mid_flight_never_twice", PROCESSES),
    at("I69", "acceptance/kills.rs", "store_killed_mid_flight_never_twice", PROCESSES),
    at("I76", "core/record.rs", "a_foreign_completion_is_fenced", "two claims of one lease"),
    at("I77", "engine/tests/engine/operator.rs", "forgetting_fences_a_lease_that_is_out", "the operator's socket"),
    at("I78", "engine/tests/engine/damage.rs", "a_damaged_record_is_refused_and_never_executes", INSIDE),
    at("I80", "core/record.rs", "another_fingerprint_is_a_mismatch_in_every_state", "two versions of the filter"),
    at("I81", "acceptance/drain.rs", "a_drain_answers_and_keeps_what_is_in_flight", PROCESSES),
    at("L06", "acceptance/limiter.rs", "n_pass_and_the_next_is_429", "reads every number of a refusal"),
    at("L08", "acceptance/limiter.rs", "n_pass_and_the_next_is_429", PARALLEL),
    at("L09", "acceptance/restarts.rs", "still_limited_after_sigterm_and_restart", PROCESSES),
    at("L10", "acceptance/restarts.rs", "still_limited_after_sigkill_and_restart", PROCESSES),
    at("L11", "acceptance/clock.rs", "clock_backwards_grants_nothing", INSIDE),
    at("L12", "acceptance/clock.rs", "clock_forwards_grants_nothing", INSIDE),
    at("L13", "engine/src/clock.rs", "a_reboot_believes_a_wall_clock_that_is_ahead_and_never_one_that_is_behind", INSIDE),
];

fn read(file: &str) -> String {
    let (part, rest) = file
        .split_once('/')
        .expect("a part of the project, and a file");
    let folder = match part {
        "acceptance" => ACCEPTANCE,
        "engine" => ENGINE,
        _ => CORE,
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    std::fs::read_to_string(root.join(folder).join(rest)).expect("the file is there")
}

#[test]
fn every_case_is_shown_somewhere() {
    let cases: BTreeSet<&str> = CASES.split_whitespace().collect();
    let scenarios = all().into_iter().flat_map(|(_, scenarios)| scenarios);
    let mut shown: BTreeSet<&str> = scenarios
        .flat_map(|scenario| scenario.cases.iter().copied())
        .collect();
    for Elsewhere {
        case,
        file,
        test,
        why,
    } in ELSEWHERE
    {
        assert!(
            read(file).contains(&format!("fn {test}(")),
            "{case}: no test {test} in {file}"
        );
        assert!(!why.is_empty(), "{case}: why is it there?");
        shown.insert(case);
    }
    let missing: Vec<_> = cases.difference(&shown).collect();
    assert!(
        missing.is_empty(),
        "neither a scenario nor explained: {missing:?}"
    );
    let strange: Vec<_> = shown.difference(&cases).collect();
    assert!(strange.is_empty(), "not of the list: {strange:?}");
}
