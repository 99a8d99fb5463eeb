//! Independent simulations side by side.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::error::{Error, Result};

/// Does `work` for every item, on up to `threads` threads; the results come in the order of the items.
pub fn map<T: Sync, R: Send>(
    items: &[T],
    threads: usize,
    work: impl Fn(&T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<(usize, Result<R>)>> = Mutex::new(Vec::with_capacity(items.len()));
    let worker = || {
        while let Some((i, item)) =
            Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|i| Some((i, items.get(i)?)))
        {
            let result = work(item);
            let failed = result.is_err();
            results.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((i, result));
            if failed {
                next.store(items.len(), Ordering::Relaxed);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.clamp(1, items.len().max(1)) {
            scope.spawn(worker);
        }
        worker();
    });
    let mut results = results.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    results.sort_by_key(|(i, _)| *i);
    let list: Vec<R> = results.into_iter().map(|(_, result)| result).collect::<Result<_>>()?;
    if list.len() < items.len() {
        return Err(Error::Option("A simulation failed".into()));
    }
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_order() {
        let items: Vec<u32> = (0..100).collect();
        let doubled = map(&items, 4, |i| Ok(i * 2)).unwrap();
        assert_eq!(doubled, items.iter().map(|i| i * 2).collect::<Vec<_>>());
        assert!(map(&items, 4, |i| if *i == 50 { Err(Error::Option("no".into())) } else { Ok(()) }).is_err());
        assert!(map(&[], 4, |_: &u32| Ok(())).unwrap().is_empty());
    }
}
