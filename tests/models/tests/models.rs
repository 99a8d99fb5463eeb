//! The models, each in all orders.

macro_rules! models {
    ($($name:ident),*) => {$(
        #[test]
        fn $name() {
            rgpu_models::$name();
        }
    )*};
}

models!(
    a_lease_is_not_exceeded,
    a_reader_that_sleeps_is_woken,
    a_recall_during_a_release_is_not_forgotten,
    a_recall_during_an_allocation_is_not_forgotten,
    a_smaller_lease_is_not_exceeded,
    a_writer_that_sleeps_is_woken,
    bytes_come_out_as_they_went_in,
    no_memory_is_promised_twice,
    no_slot_is_taken_twice,
    what_an_application_had_comes_back_once
);
