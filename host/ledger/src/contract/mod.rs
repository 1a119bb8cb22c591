//! What every ledger must do, as functions that fail with words. [`crate::contract_tests`] makes tests of them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs,
    reason = "this is a test suite, kept here so that each ledger's tests can run it"
)]

mod audit;
mod begin;
mod claim;
mod commit;
mod keep;
mod lease;
mod quota;
mod rig;

pub use audit::*;
pub use begin::*;
pub use claim::*;
pub use commit::*;
pub use keep::*;
pub use lease::*;
pub use quota::*;
pub use rig::{Rig, SECRET, Sample};

/// Makes a test of each rule of the contract; the argument is an async function that gives a fresh [`Rig`].
#[macro_export]
macro_rules! contract_tests {
    ($rig:path) => {
        $crate::contract_tests! { @each $rig;
            what_is_begun_is_there
            repeats_are_the_same_job
            a_request_id_with_another_body_is_reused
            an_equal_body_joins
            another_body_is_busy
            other_scopes_do_not_meet
            concurrent_begins_make_one_job
            a_repeat_of_a_final_job_is_answered
            a_write_changes_row_and_events
            a_stale_write_is_refused
            a_token_that_was_overtaken_is_refused
            final_jobs_free_their_resources
            a_retry_takes_the_resources_again
            times_in_events_are_counted_from_now
            one_failing_write_harms_no_other
            a_writer_without_token_may_write
            due_jobs_are_claimed_once
            parked_jobs_are_claimed_after_their_pause
            drafts_and_final_jobs_are_not_claimed
            a_lease_is_taken_over_only_after_the_delay
            a_released_job_is_claimed_at_once
            renewing_keeps_a_lease_and_names_the_lost
            claims_are_fair_by_tenant
            one_place_goes_round_the_tenants
            limits_hold
            a_full_lane_does_not_block_its_tenant
            only_digests_that_the_host_runs_are_claimed
            concurrent_claims_never_share_a_job
            the_next_due_time_is_known
            a_write_wakes_waiters
            lists_are_filtered_and_paged
            events_are_read_in_order
            depth_counts
            old_final_jobs_are_purged
            plugins_stay_while_a_job_needs_them
            everything_survives_export_and_import
            an_import_does_not_overwrite
            a_probe_leaves_nothing
            a_healthy_ledger_has_no_problems
            time_does_not_go_back
            the_last_place_goes_to_one_job
            what_counts_follows_the_job
            a_tenant_has_a_quota_within_its_instances
            a_quota_that_was_lowered_touches_nothing_that_runs
            forgotten_jobs_still_count
            a_long_history_is_counted_right
            what_a_later_job_changed_is_left_alone
            what_is_taken_survives_export_and_import
            lists_tell_instances_apart
            equal_names_in_two_instances_never_meet
            what_is_asked_for_is_audited
            the_audit_is_filtered_and_paged
            the_audit_outlives_its_jobs_until_it_is_old
            the_audit_survives_export_and_import
        }
    };
    (@each $rig:path; $($name:ident)+) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
        async fn $name() {
            $crate::contract::$name(&$rig().await).await;
        })+
    };
}
