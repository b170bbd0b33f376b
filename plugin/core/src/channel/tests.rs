//! When calls go out, come back, are sent again, and fail.

use super::*;

/// A channel with its clock and what it wanted done.
struct Bench {
    channel: Channel,
    now: u64,
    commands: Vec<Command>,
}

impl Bench {
    /// With a stream that has acknowledged the hello.
    fn up() -> Self {
        let mut bench = Self {
            channel: Channel::new(250, b"hello".to_vec()),
            now: 1_000,
            commands: vec![],
        };
        assert_eq!(bench.tick(0), [Command::Open]);
        assert_eq!(bench.opened(), [Command::Send(b"hello".to_vec())]);
        assert_eq!(bench.received(1), []);
        bench
    }

    fn at(&self) -> Timestamp {
        Timestamp::from_ms(self.now)
    }

    fn done(&mut self) -> Vec<Command> {
        std::mem::take(&mut self.commands)
    }

    fn call(&mut self, kind: Kind, bytes: &str) -> (CallId, Vec<Command>) {
        let id = self.channel.next_id();
        let owner = Owner::Exchange(u32::try_from(id).expect("small") + 100);
        let (now, bytes) = (self.at(), bytes.as_bytes());
        self.channel
            .call(
                NewCall {
                    id,
                    owner,
                    kind,
                    via: Via::Stream,
                },
                bytes,
                now,
                &mut self.commands,
            )
            .expect("taken");
        (id, self.done())
    }

    fn refused(&mut self, kind: Kind) -> bool {
        let id = self.channel.next_id();
        let now = self.at();
        self.channel.call(
            NewCall {
                id,
                owner: Owner::Exchange(1),
                kind,
                via: Via::Stream,
            },
            b"x",
            now,
            &mut self.commands,
        ) == Err(NotTaken)
    }

    /// What is done beside measuring.
    fn received(&mut self, messages: u64) -> Vec<Command> {
        self.channel
            .received(messages, Timestamp::from_ms(self.now), &mut self.commands);
        self.commands
            .retain(|command| !matches!(command, Command::Acknowledged(_)));
        self.done()
    }

    fn opened(&mut self) -> Vec<Command> {
        self.channel
            .opened(Timestamp::from_ms(self.now), &mut self.commands);
        self.done()
    }

    fn closed(&mut self) -> Vec<Command> {
        self.channel
            .closed(Timestamp::from_ms(self.now), &mut self.commands);
        self.done()
    }

    fn tick(&mut self, ms: u64) -> Vec<Command> {
        self.now += ms;
        self.channel
            .tick(Timestamp::from_ms(self.now), &mut self.commands);
        self.done()
    }
}

fn sent(text: &str) -> Command {
    Command::Send(text.as_bytes().to_vec())
}

const CLAIM: Kind = Kind::Claim { wait_ms: 0 };
const ABANDON: Kind = Kind::Abandon { lease_ms: 10_000 };

#[test]
fn batches_form_while_two_messages_are_unacknowledged() {
    let mut bench = Bench::up();
    assert_eq!(bench.call(Kind::Once, "a").1, [sent("a")]);
    assert_eq!(bench.call(Kind::Once, "b").1, [sent("b")]);
    assert_eq!(bench.call(Kind::Once, "c").1, []);
    assert_eq!(bench.call(Kind::Once, "d").1, []);
    assert_eq!(
        bench.received(2),
        [sent("cd")],
        "the first of the two was acknowledged"
    );
    assert_eq!(bench.call(Kind::Once, "e").1, []);
    assert_eq!(bench.received(4), [sent("e")]);
}

#[test]
fn claims_take_what_waits_along() {
    let mut bench = Bench::up();
    bench.call(Kind::Once, "a");
    bench.call(Kind::Once, "b");
    bench.call(Kind::Once, "c");
    assert_eq!(bench.call(CLAIM, "K").1, [sent("cK")]);
    assert_eq!(bench.call(ABANDON, "A").1, [sent("A")]);
}

#[test]
fn a_closed_stream_fails_admits_and_keeps_the_rest() {
    let mut bench = Bench::up();
    bench.call(Kind::Once, "a");
    let (claim, _) = bench.call(CLAIM, "K");
    let (complete, _) = bench.call(Kind::Complete, "C");
    assert_eq!(
        bench.closed(),
        [Command::Failed {
            owner: Owner::Exchange(101),
            sent: true
        }]
    );
    assert!(bench.refused(Kind::Once), "no store: at once");
    assert_eq!(bench.tick(50), [Command::Open]);
    assert_eq!(bench.opened(), [sent("hello"), sent("KC")]);
    assert!(
        bench.refused(Kind::Once),
        "the new stream has not acknowledged"
    );
    assert_eq!(bench.received(1), []);
    assert!(!bench.refused(Kind::Once));
    assert_eq!(bench.channel.answered(claim), Some(Owner::Exchange(102)));
    assert_eq!(bench.channel.answered(complete), Some(Owner::Exchange(103)));
    assert_eq!(bench.channel.answered(complete), None);
}

#[test]
fn a_store_that_hangs_is_noticed() {
    let mut bench = Bench::up();
    bench.call(Kind::Once, "a");
    assert_eq!(bench.tick(200), []);
    bench.call(CLAIM, "K");
    assert_eq!(
        bench.tick(51),
        [
            Command::Close,
            Command::Failed {
                owner: Owner::Exchange(101),
                sent: true
            }
        ]
    );
    assert_eq!(bench.tick(50), [Command::Open]);
    assert_eq!(bench.opened(), [sent("hello"), sent("K")]);
    assert_eq!(
        bench.tick(150),
        [Command::Failed {
            owner: Owner::Exchange(102),
            sent: true
        }],
        "the claim's own deadline"
    );
}

#[test]
fn a_stream_that_never_acknowledges_is_given_time_and_not_trusted() {
    let mut bench = Bench::up();
    bench.closed();
    assert_eq!(bench.tick(50), [Command::Open]);
    bench.opened();
    assert_eq!(bench.tick(5_000), []);
    assert!(bench.refused(Kind::Once));
    assert_eq!(bench.tick(1), [Command::Close]);
}

#[test]
fn an_answer_that_comes_late_fails_its_call_and_not_the_stream() {
    let mut bench = Bench::up();
    let (admit, _) = bench.call(Kind::Once, "a");
    assert_eq!(bench.received(2), []);
    assert_eq!(
        bench.tick(250),
        [Command::Failed {
            owner: Owner::Exchange(101),
            sent: true
        }]
    );
    assert_eq!(bench.channel.answered(admit), None);
    assert!(!bench.refused(Kind::Once));
}

#[test]
fn a_claim_that_was_never_sent_needs_no_abandon() {
    let mut bench = Bench::up();
    bench.closed();
    let (claim, commands) = bench.call(CLAIM, "K");
    assert_eq!(commands, []);
    assert!(!bench.channel.give_up(Owner::Exchange(101)));
    assert_eq!(bench.channel.answered(claim), None);
    bench.tick(50);
    bench.opened();
    bench.call(CLAIM, "L");
    assert!(bench.channel.give_up(Owner::Exchange(102)));
}

#[test]
fn a_completion_is_sent_until_acknowledged_and_its_owner_told_in_time() {
    let mut bench = Bench::up();
    let (complete, _) = bench.call(Kind::Complete, "C");
    bench.closed();
    assert_eq!(
        bench.tick(250),
        [
            Command::Failed {
                owner: Owner::Exchange(101),
                sent: true
            },
            Command::Open
        ]
    );
    assert_eq!(bench.opened(), [sent("hello"), sent("C")]);
    bench.received(2);
    assert!(
        bench.channel.refused_for_now(complete, bench.at()),
        "a store that stops says: later"
    );
    assert_eq!(bench.tick(50), [sent("C")]);
    bench.received(3);
    assert!(bench.channel.is_settling());
    assert_eq!(bench.channel.retained_bytes(), 1);
    assert_eq!(
        bench.channel.answered(complete),
        None,
        "nobody waits any more"
    );
    assert!(!bench.channel.is_settling());
    assert_eq!(bench.channel.retained_bytes(), 0);
}

#[test]
fn an_abandon_ends_with_its_lease_and_their_number_is_bounded() {
    let mut bench = Bench::up();
    bench.closed();
    for _ in 0..ABANDONS_MAX {
        bench.call(ABANDON, "A");
    }
    assert!(bench.refused(ABANDON));
    let commands = bench.tick(10_000);
    assert_eq!(
        commands
            .iter()
            .filter(|command| **command == Command::Lost)
            .count(),
        ABANDONS_MAX
    );
    assert!(!bench.refused(ABANDON));
}

#[test]
fn reopening_backs_off() {
    let mut bench = Bench::up();
    bench.closed();
    let mut waits = vec![];
    let mut waited = 0;
    while waits.len() < 7 {
        waited += 10;
        if bench.tick(10) == [Command::Open] {
            bench.closed();
            waits.push(std::mem::take(&mut waited));
        }
    }
    assert_eq!(waits, [50, 100, 200, 400, 800, 1000, 1000]);
}

#[test]
fn an_invoked_call_is_sent_again_too() {
    let mut bench = Bench::up();
    let id = bench.channel.next_id();
    let now = bench.at();
    bench
        .channel
        .call(
            NewCall {
                id,
                owner: Owner::Exchange(7),
                kind: Kind::Complete,
                via: Via::Invoke,
            },
            b"big",
            now,
            &mut bench.commands,
        )
        .expect("taken");
    assert_eq!(bench.done(), [Command::Invoke(id, b"big".to_vec())]);
    bench.channel.invoke_failed(id, bench.at());
    assert_eq!(bench.tick(50), [Command::Invoke(id, b"big".to_vec())]);
    assert_eq!(bench.channel.answered(id), Some(Owner::Exchange(7)));
    assert_eq!(bench.tick(500), []);
}

#[test]
fn a_claim_that_may_wait_has_that_much_longer() {
    let mut bench = Bench::up();
    bench.call(Kind::Claim { wait_ms: 5_000 }, "K");
    bench.received(2);
    assert_eq!(bench.tick(5_249), []);
    let failed = Command::Failed {
        owner: Owner::Exchange(101),
        sent: true,
    };
    assert_eq!(bench.tick(1), [failed]);
}

#[test]
fn how_long_the_store_takes_is_measured_by_message() {
    let mut bench = Bench::up();
    bench.call(Kind::Once, "a");
    bench.tick(30);
    bench.call(Kind::Once, "b");
    bench.tick(10);
    bench
        .channel
        .received(3, Timestamp::from_ms(bench.now), &mut bench.commands);
    assert_eq!(
        bench.done(),
        [Command::Acknowledged(40), Command::Acknowledged(10)]
    );
}
