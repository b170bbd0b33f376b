//! How many kept responses does one batch read?

use bytes::Bytes;
use porch_engine::{ClaimAnswer, Outcome};

use crate::{
    damage::{ask, claim, complete},
    driver::Driver,
};

#[test]
fn replays_are_read_a_few_at_a_time_and_in_order() {
    let mut driver = Driver::new(8);
    for key in 1..=4 {
        ask(&mut driver, &claim(key, 1));
        let body = Bytes::from(vec![key; 3 << 20]);
        complete(&mut driver, key, 1, body);
    }
    for key in [1, 2, 3, 4] {
        let caller = driver.caller();
        let again = claim(key, 2);
        assert_eq!(driver.front.claim(driver.now_ms, caller, &again), None);
    }
    let mut replayed = Vec::new();
    let mut batches = Vec::new();
    let mut answers = Vec::new();
    while driver.batch(&mut answers) {
        batches.push(answers.len());
        for answer in answers.drain(..) {
            match answer.outcome {
                Outcome::Claimed(ClaimAnswer::Replay(response)) => replayed.push(response.body[0]),
                other => panic!("expected a replay, came {other:?}"),
            }
        }
    }
    assert_eq!((batches, replayed), (vec![2, 2], vec![1, 2, 3, 4]));
}
