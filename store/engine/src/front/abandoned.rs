//! Which claims were given up, so that one that comes late is refused?

use std::collections::VecDeque;

use hashbrown::HashMap;
use porch_core::record::ClaimId;

/// Ids that are remembered; beyond, the oldest is forgotten and its lease decides.
const IDS_MAX: usize = 65_536;

/// The ids of abandoned claims, each for one lease.
#[derive(Debug, Default)]
pub(super) struct Abandoned {
    until_ms: HashMap<ClaimId, u64>,
    /// In the order they came.
    order: VecDeque<ClaimId>,
}

impl Abandoned {
    pub(super) fn insert(&mut self, now_ms: u64, id: ClaimId, lease_ms: u64) {
        while let Some(oldest) = self.order.front() {
            let over = self.until_ms.get(oldest).is_none_or(|end| *end <= now_ms);
            if !over && self.order.len() < IDS_MAX {
                break;
            }
            if let Some(oldest) = self.order.pop_front() {
                self.until_ms.remove(&oldest);
            }
        }
        let until_ms = now_ms.saturating_add(lease_ms);
        if self.until_ms.insert(id, until_ms).is_none() {
            self.order.push_back(id);
        }
    }

    pub(super) fn contains(&self, now_ms: u64, id: &ClaimId) -> bool {
        self.until_ms.get(id).is_some_and(|end| now_ms < *end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: u32) -> ClaimId {
        u128::from(n).to_be_bytes()
    }

    #[test]
    fn an_id_is_remembered_for_one_lease() {
        let mut abandoned = Abandoned::default();
        abandoned.insert(100, id(1), 50);
        assert!(abandoned.contains(149, &id(1)));
        assert!(!abandoned.contains(150, &id(1)));
        assert!(!abandoned.contains(100, &id(2)));
        // Sent again, it is remembered anew.
        abandoned.insert(140, id(1), 50);
        assert!(abandoned.contains(189, &id(1)));
    }

    #[test]
    fn the_oldest_goes_when_there_are_too_many() {
        let mut abandoned = Abandoned::default();
        for n in 0..65_537 {
            abandoned.insert(0, id(n), 1_000);
        }
        assert!(!abandoned.contains(1, &id(0)));
        assert!(abandoned.contains(1, &id(1)));
        assert!(abandoned.contains(1, &id(65_536)));
        assert_eq!(abandoned.order.len(), 65_536);
    }

    #[test]
    fn ids_whose_lease_is_over_take_no_room() {
        let mut abandoned = Abandoned::default();
        for n in 0..1_000 {
            abandoned.insert(0, id(n), 10);
        }
        abandoned.insert(10, id(9_999), 10);
        assert_eq!(abandoned.order.len(), 1);
    }
}
