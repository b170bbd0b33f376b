//! What may happen to the record of an idempotency key?
//!
//! ```text
//!             claim                    complete(response)            ttl                  remember
//!   (none) ----------> PENDING ------------------------------> DONE ------> TOMBSTONE --------------> (none)
//!      ^                |  |  `-- complete(tombstone) -----------------------^
//!      |    abandon     |  |                                                        remember
//!      '----------------'  '- complete(unknown), or the lease ran out -> UNKNOWN --------------> (none)
//! ```
//! UNKNOWN returns to PENDING by a claim that accepts the risk (`execute_unknown`), and becomes DONE or TOMBSTONE
//! when its own claim completes after all. All times are milliseconds of the store's logical clock.

/// The 16 random bytes that name a claim, and the lease that it is granted.
pub type ClaimId = [u8; 16];

/// A version byte and a SHA-256: the digest of a request.
pub type Fingerprint = [u8; 33];

/// What the store keeps for a key, beside the response itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// The claim that the record belongs to; a completion by any other is fenced.
    pub claim_id: ClaimId,
    /// The request that the key stands for.
    pub fingerprint: Fingerprint,
    /// How long a response is kept from completion.
    pub ttl_ms: u64,
    /// How long it is remembered that the key was used, from completion or the lease's end; at least `ttl_ms`.
    pub remember_ms: u64,
    /// Where the record stands.
    pub state: State,
}

/// Where a record stands, as it is written. [`Record::at`] says what that means at a given time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Leased to its claim. Past the lease it reads as UNKNOWN.
    Pending {
        /// The first millisecond after the lease.
        lease_ends_ms: u64,
    },
    /// Executed, and the response is kept.
    Done {
        /// The response's status.
        status: u16,
        /// When it was completed.
        completed_ms: u64,
    },
    /// Executed; the response is not kept.
    Tombstone {
        /// The status that upstream answered.
        status: u16,
        /// When it was completed.
        completed_ms: u64,
    },
    /// It cannot be known whether upstream executed.
    Unknown {
        /// The status that the first caller saw; 0 when nobody was told one.
        status: u16,
        /// When that was decided.
        completed_ms: u64,
    },
}

/// A claim, as its caller sends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// Who asks. The same id again is the same claim.
    pub claim_id: ClaimId,
    /// The request that asks.
    pub fingerprint: Fingerprint,
    /// How long the lease lasts.
    pub lease_ms: u64,
    /// See [`Record::ttl_ms`].
    pub ttl_ms: u64,
    /// See [`Record::remember_ms`].
    pub remember_ms: u64,
    /// Grant a key whose outcome is unknown: for upstreams that are themselves idempotent.
    pub execute_unknown: bool,
}

/// How a claim ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Upstream answered, and the answer is kept.
    Response {
        /// The answer's status.
        status: u16,
    },
    /// Upstream answered, and the answer is not kept.
    Tombstone {
        /// The answer's status.
        status: u16,
    },
    /// It cannot be known whether upstream executed.
    Unknown {
        /// The status that the caller was told; 0 for none.
        status: u16,
    },
}

/// What a claim is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claimed {
    /// The caller executes; this record is to be written first.
    Granted(Record),
    /// The kept response.
    Replay,
    /// Another claim holds the lease.
    InFlight,
    /// The key was used with another fingerprint.
    Mismatch,
    /// Executed, the response is not kept.
    Tombstone {
        /// The status that upstream answered.
        status: u16,
    },
    /// It cannot be known whether upstream executed.
    Unknown {
        /// The status that the first caller saw; 0 for none.
        status: u16,
    },
}

/// What a completion does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Completed {
    /// This record is to be written, with the response when it is DONE.
    Write(Record),
    /// The same completion was here before: nothing changes.
    Already,
    /// The record belongs to another claim, or is gone: it stays as it is.
    Fenced,
}

/// What an operator makes of a record whose outcome is unknown, having looked at upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settlement {
    /// Upstream did not execute: the record goes, and a retry executes.
    Released,
    /// Upstream executed: a retry is refused and told this status.
    Tombstone {
        /// The status that upstream answered.
        status: u16,
    },
}

/// What settling does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    /// The record is to be removed.
    Remove,
    /// This record is to be written.
    Write(Record),
    /// Its outcome is not unknown, so it stays; this is how it reads.
    Known(State),
    /// There is no record.
    Missing,
}

impl Record {
    /// The record as it reads at `now_ms`: a lease that has run out is UNKNOWN, a response past its ttl is a
    /// TOMBSTONE, and a record that is no longer remembered is none.
    pub fn at(&self, now_ms: u64) -> Option<Self> {
        if now_ms >= self.forgotten_ms() {
            return None;
        }
        let state = match self.state {
            State::Pending { lease_ends_ms } if now_ms >= lease_ends_ms => State::Unknown {
                status: 0,
                completed_ms: lease_ends_ms,
            },
            State::Done {
                status,
                completed_ms,
            } if now_ms >= completed_ms.saturating_add(self.ttl_ms) => State::Tombstone {
                status,
                completed_ms,
            },
            State::Pending { .. }
            | State::Done { .. }
            | State::Tombstone { .. }
            | State::Unknown { .. } => self.state,
        };
        Some(Self { state, ..*self })
    }

    /// When the row has to be looked at again: the ttl's end for a kept response, else [`Record::forgotten_ms`].
    pub fn expires_ms(&self) -> u64 {
        match self.state {
            State::Done { completed_ms, .. } => completed_ms
                .saturating_add(self.ttl_ms)
                .min(self.forgotten_ms()),
            State::Pending { .. } | State::Tombstone { .. } | State::Unknown { .. } => {
                self.forgotten_ms()
            }
        }
    }

    /// The first millisecond at which the key is new again. A PENDING record is remembered from its lease's end.
    pub fn forgotten_ms(&self) -> u64 {
        let from_ms = match self.state {
            State::Pending { lease_ends_ms } => lease_ends_ms,
            State::Done { completed_ms, .. }
            | State::Tombstone { completed_ms, .. }
            | State::Unknown { completed_ms, .. } => completed_ms,
        };
        from_ms.saturating_add(self.remember_ms)
    }
}

/// Decides a claim on a key, given the key's row as it was written.
pub fn claim(row: Option<&Record>, claim: &Claim, now_ms: u64) -> Claimed {
    let grant = Claimed::Granted(Record {
        claim_id: claim.claim_id,
        fingerprint: claim.fingerprint,
        ttl_ms: claim.ttl_ms,
        remember_ms: claim.remember_ms,
        state: State::Pending {
            lease_ends_ms: now_ms.saturating_add(claim.lease_ms),
        },
    });
    let Some(record) = row.and_then(|row| row.at(now_ms)) else {
        return grant;
    };
    if record.fingerprint != claim.fingerprint {
        return Claimed::Mismatch;
    }
    match record.state {
        State::Pending { .. } if record.claim_id == claim.claim_id => grant,
        State::Pending { .. } => Claimed::InFlight,
        State::Done { .. } => Claimed::Replay,
        State::Tombstone { status, .. } => Claimed::Tombstone { status },
        State::Unknown { .. } if claim.execute_unknown => grant,
        State::Unknown { status, .. } => Claimed::Unknown { status },
    }
}

/// Decides a completion by `claim_id`. Safe to repeat; an outcome once known is never replaced, and UNKNOWN yields
/// to what its own claim learns later.
pub fn complete(
    row: Option<&Record>,
    claim_id: &ClaimId,
    outcome: Outcome,
    now_ms: u64,
) -> Completed {
    let Some(record) = row.and_then(|row| row.at(now_ms)) else {
        return Completed::Fenced;
    };
    if record.claim_id != *claim_id {
        return Completed::Fenced;
    }
    let completed_ms = now_ms;
    let state = match outcome {
        Outcome::Response { status } => State::Done {
            status,
            completed_ms,
        },
        Outcome::Tombstone { status } => State::Tombstone {
            status,
            completed_ms,
        },
        Outcome::Unknown { status } => State::Unknown {
            status,
            completed_ms,
        },
    };
    // The row decides, not how it reads: a lease that has run out is still its own claim's to complete.
    let undecided = row.is_some_and(|row| matches!(row.state, State::Pending { .. }));
    let learns = matches!(record.state, State::Unknown { .. })
        && !matches!(outcome, Outcome::Unknown { .. });
    if undecided || learns {
        Completed::Write(Record { state, ..record })
    } else {
        Completed::Already
    }
}

/// Whether an abandon by `claim_id` removes the record: it is that claim's, and was never completed. Its request
/// never ran, so that is right past the lease too.
pub fn abandon(row: Option<&Record>, claim_id: &ClaimId) -> bool {
    row.is_some_and(|row| row.claim_id == *claim_id && matches!(row.state, State::Pending { .. }))
}

/// Decides a settlement. A tombstone is remembered from when the outcome became unknown: settling prolongs nothing.
pub fn settle(row: Option<&Record>, settlement: Settlement, now_ms: u64) -> Settled {
    let Some(record) = row.and_then(|row| row.at(now_ms)) else {
        return Settled::Missing;
    };
    match (record.state, settlement) {
        (State::Unknown { .. }, Settlement::Released) => Settled::Remove,
        (State::Unknown { completed_ms, .. }, Settlement::Tombstone { status }) => {
            Settled::Write(Record {
                state: State::Tombstone {
                    status,
                    completed_ms,
                },
                ..record
            })
        }
        (
            state @ (State::Pending { .. } | State::Done { .. } | State::Tombstone { .. }),
            Settlement::Released | Settlement::Tombstone { .. },
        ) => Settled::Known(state),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_000_000;

    fn ask(id: u8) -> Claim {
        Claim {
            claim_id: [id; 16],
            fingerprint: [7; 33],
            lease_ms: 1_000,
            ttl_ms: 10_000,
            remember_ms: 50_000,
            execute_unknown: false,
        }
    }

    fn granted(claimed: Claimed) -> Record {
        let Claimed::Granted(record) = claimed else {
            panic!("expected a grant, came {claimed:?}")
        };
        record
    }

    fn written(completed: Completed) -> Record {
        let Completed::Write(record) = completed else {
            panic!("expected a write, came {completed:?}")
        };
        record
    }

    #[test]
    fn one_claim_is_granted_and_the_other_waits() {
        let row = granted(claim(None, &ask(1), NOW));
        assert_eq!(claim(Some(&row), &ask(2), NOW + 999), Claimed::InFlight);
    }

    #[test]
    fn the_same_claim_again_gets_its_lease_anew() {
        let row = granted(claim(None, &ask(1), NOW));
        let again = granted(claim(Some(&row), &ask(1), NOW + 900));
        assert_eq!(
            again.state,
            State::Pending {
                lease_ends_ms: NOW + 1_900
            }
        );
    }

    #[test]
    fn another_fingerprint_is_a_mismatch_in_every_state() {
        let mut another_version = ask(1).fingerprint;
        another_version[0] += 1;
        let others = [[8; 33], another_version].map(|fingerprint| Claim {
            fingerprint,
            execute_unknown: true,
            ..ask(1)
        });
        let pending = granted(claim(None, &ask(1), NOW));
        let mut rows = vec![pending];
        for outcome in [
            Outcome::Response { status: 201 },
            Outcome::Tombstone { status: 201 },
            Outcome::Unknown { status: 504 },
        ] {
            rows.push(written(complete(Some(&pending), &[1; 16], outcome, NOW)));
        }
        for row in rows {
            for other in &others {
                assert_eq!(claim(Some(&row), other, NOW + 1), Claimed::Mismatch);
            }
        }
    }

    #[test]
    fn a_lease_that_ran_out_reads_as_unknown_and_is_remembered_from_its_end() {
        let row = granted(claim(None, &ask(1), NOW));
        let late = NOW + 1_000;
        assert_eq!(
            claim(Some(&row), &ask(2), late),
            Claimed::Unknown { status: 0 }
        );
        // Whoever sends it: a claim that outlived its lease may have executed.
        assert_eq!(
            claim(Some(&row), &ask(1), late),
            Claimed::Unknown { status: 0 }
        );
        assert_eq!(
            claim(Some(&row), &ask(2), late + 49_999),
            Claimed::Unknown { status: 0 }
        );
        granted(claim(Some(&row), &ask(2), late + 50_000));
    }

    #[test]
    fn its_own_completion_still_counts_after_the_lease() {
        let row = granted(claim(None, &ask(1), NOW));
        let late = NOW + 30_000;
        let done = written(complete(
            Some(&row),
            &[1; 16],
            Outcome::Response { status: 201 },
            late,
        ));
        assert_eq!(claim(Some(&done), &ask(2), late), Claimed::Replay);
        assert_eq!(done.expires_ms(), late + 10_000);
    }

    #[test]
    fn a_foreign_completion_is_fenced() {
        let outcome = Outcome::Response { status: 201 };
        let row = granted(claim(None, &ask(1), NOW));
        assert_eq!(
            complete(Some(&row), &[2; 16], outcome, NOW),
            Completed::Fenced
        );
        assert_eq!(complete(None, &[1; 16], outcome, NOW), Completed::Fenced);
    }

    #[test]
    fn a_completion_sent_twice_changes_nothing() {
        let row = granted(claim(None, &ask(1), NOW));
        let outcome = Outcome::Response { status: 201 };
        let done = written(complete(Some(&row), &[1; 16], outcome, NOW));
        assert_eq!(
            complete(Some(&done), &[1; 16], outcome, NOW + 9),
            Completed::Already
        );
        let worse = Outcome::Unknown { status: 0 };
        assert_eq!(
            complete(Some(&done), &[1; 16], worse, NOW + 9),
            Completed::Already
        );
    }

    #[test]
    fn unknown_yields_to_what_its_own_claim_learns() {
        let row = granted(claim(None, &ask(1), NOW));
        let unknown = written(complete(
            Some(&row),
            &[1; 16],
            Outcome::Unknown { status: 504 },
            NOW,
        ));
        assert_eq!(
            claim(Some(&unknown), &ask(2), NOW),
            Claimed::Unknown { status: 504 }
        );
        let known = written(complete(
            Some(&unknown),
            &[1; 16],
            Outcome::Response { status: 201 },
            NOW + 5,
        ));
        assert_eq!(claim(Some(&known), &ask(2), NOW + 5), Claimed::Replay);
    }

    #[test]
    fn a_caller_that_accepts_the_risk_executes_an_unknown_key_and_fences_the_first() {
        let row = granted(claim(None, &ask(1), NOW));
        let bold = Claim {
            execute_unknown: true,
            ..ask(2)
        };
        assert_eq!(claim(Some(&row), &bold, NOW + 999), Claimed::InFlight);
        let second = granted(claim(Some(&row), &bold, NOW + 1_000));
        assert_eq!(
            complete(
                Some(&second),
                &[1; 16],
                Outcome::Response { status: 201 },
                NOW + 1_001
            ),
            Completed::Fenced
        );
    }

    #[test]
    fn a_response_becomes_a_tombstone_and_then_nothing() {
        let row = granted(claim(None, &ask(1), NOW));
        let done = written(complete(
            Some(&row),
            &[1; 16],
            Outcome::Response { status: 201 },
            NOW,
        ));
        let at = |ms| claim(Some(&done), &ask(2), NOW + ms);
        assert_eq!(at(9_999), Claimed::Replay);
        assert_eq!(at(10_000), Claimed::Tombstone { status: 201 });
        assert_eq!(at(49_999), Claimed::Tombstone { status: 201 });
        granted(at(50_000));
    }

    #[test]
    fn an_abandon_removes_only_its_own_pending_record() {
        let row = granted(claim(None, &ask(1), NOW));
        assert!(abandon(Some(&row), &[1; 16]));
        assert!(!abandon(Some(&row), &[2; 16]));
        assert!(!abandon(None, &[1; 16]));
        let done = written(complete(
            Some(&row),
            &[1; 16],
            Outcome::Response { status: 201 },
            NOW,
        ));
        assert!(!abandon(Some(&done), &[1; 16]));
    }

    #[test]
    fn an_operator_settles_what_is_unknown_and_nothing_else() {
        let row = granted(claim(None, &ask(1), NOW));
        let tombstone = Settlement::Tombstone { status: 201 };
        let pending = settle(Some(&row), tombstone, NOW + 999);
        assert!(
            matches!(pending, Settled::Known(State::Pending { .. })),
            "{pending:?}"
        );
        // The lease has run out.
        let late = NOW + 1_000;
        assert_eq!(
            settle(Some(&row), Settlement::Released, late),
            Settled::Remove
        );
        let Settled::Write(settled) = settle(Some(&row), tombstone, late + 5) else {
            panic!("an unknown outcome is settled")
        };
        assert_eq!(settled.forgotten_ms(), late + 50_000, "it prolongs nothing");
        assert_eq!(
            claim(Some(&settled), &ask(2), late + 5),
            Claimed::Tombstone { status: 201 }
        );
        assert_eq!(
            complete(
                Some(&settled),
                &[1; 16],
                Outcome::Response { status: 500 },
                late + 6
            ),
            Completed::Already,
            "what the operator decided stands"
        );
        assert_eq!(
            settle(Some(&settled), Settlement::Released, late + 7),
            Settled::Known(settled.state)
        );
        assert_eq!(
            settle(Some(&row), Settlement::Released, late + 50_000),
            Settled::Missing
        );
        assert_eq!(settle(None, Settlement::Released, NOW), Settled::Missing);
    }
}
