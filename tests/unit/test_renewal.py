from __future__ import annotations

import math

import pytest

from interlock.model import Holder
from interlock.renewal import RETRY, Held, Renewals
from interlock.stores.base import Done, Gone


class Lease(Held):
    def __init__(self, granted, ttl):
        self.scope, self.lock_id, self.fence, self.ttl, self.renews = "s", "a", 7, ttl, True
        self.valid_until, self.due = granted + ttl, granted + ttl / 3
        self.told = 0

    def when_lost(self):
        self.told += 1


@pytest.fixture
def renewals():
    return Renewals()


def taken(renewals, lease, now):
    """The renewal that is due now."""
    ((held, operation),) = renewals.due(now)
    assert held is lease
    return operation


def test_a_lease_is_renewed_at_a_third_of_its_ttl(renewals):
    lease = Lease(100, 30)
    renewals.add(lease)
    assert renewals.due(109.9) == []
    operation = taken(renewals, lease, 110)
    assert operation.ttl == 30_000
    assert renewals.due(111) == [], "it is under way"
    renewals.settle(lease, operation, 110, 111, Done())
    assert (lease.due, lease.valid_until) == (120, 140)


def test_while_the_store_is_away_it_is_tried_again_until_the_ttl_is_over(renewals):
    lease = Lease(100, 30)
    renewals.add(lease)
    renewals.settle(lease, taken(renewals, lease, 110), 110, 111, ConnectionError("away"))
    assert lease.due == 111 + RETRY
    taken(renewals, lease, 129)
    assert lease.lost_because is None
    assert renewals.due(130) == []
    assert "in time" in lease.lost_because, "although there is no answer yet"
    assert renewals.sleep_until(math.inf) == math.inf


def test_a_short_lease_is_tried_again_sooner(renewals):
    lease = Lease(100, 1)
    renewals.add(lease)
    renewals.settle(lease, taken(renewals, lease, 100.4), 100.4, 100.5, ConnectionError("away"))
    assert lease.due == 100.6


def test_a_renewal_that_was_overtaken_by_another_ttl_is_made_good(renewals):
    lease = Lease(100, 30)
    renewals.add(lease)
    operation = taken(renewals, lease, 110)
    lease.ttl, lease.valid_until = 3600, 3710
    renewals.settle(lease, operation, 110, 111, Done())
    assert lease.valid_until == 3710
    assert taken(renewals, lease, 111).ttl == 3_600_000


def test_whoever_lost_the_lease_is_told_once_and_why(renewals):
    lease = Lease(100, 30)
    renewals.add(lease)
    renewals.settle(lease, taken(renewals, lease, 110), 110, 111, Gone(Holder(label="the thief")))
    lease.lose("again")
    assert lease.told == 1
    assert "the thief" in lease.lost_because


def test_the_sleeper_is_woken_only_for_an_earlier_lease(renewals):
    assert renewals.add(Lease(100, 30))
    assert not renewals.add(Lease(101, 30))
    assert renewals.add(Lease(101, 3))


def test_a_burst_of_short_lived_leases_wakes_it_once(renewals):
    for number in range(5):
        lease = Lease(100 + number, 30)
        assert renewals.add(lease) is (number == 0)
        renewals.remove(lease)
        renewals.sleep_until(100 + number)
