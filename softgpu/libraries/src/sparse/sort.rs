//! Places in order.

use rgpu_device::{Code, Error, Result};
use rgpu_libraries::{Iota, SparseSort};
use rgpu_softgpu::library::{Computation, Operand, Plan};

use super::list;
use super::places::{number, room, set_number};

/// What [`SparseSort`] comes to.
pub(crate) fn sort(operation: SparseSort) -> Result<Plan> {
    let lines = operation.lines > 0;
    let first = if lines { operation.lines.checked_add(1) } else { Some(operation.count) };
    let Some(first) = first else {
        return crate::invalid("More lines than the address space holds");
    };
    if operation.count > 0 && (operation.first == 0 || operation.second == 0) {
        return crate::invalid("There are no places to be sorted");
    }
    let operands = vec![
        list(operation.first, first, 4, !lines)?,
        list(operation.second, operation.count, 4, true)?,
        list(operation.permutation, operation.count, 4, true)?,
    ];
    Ok(Plan { operands, computation: Box::new(Sort(operation)) })
}

struct Sort(SparseSort);

impl Computation for Sort {
    unsafe fn run(&self, memory: &[*mut u8], _: usize, _: usize) -> Result<()> {
        let sort = &self.0;
        let mut elements: Vec<(i64, i64, i64)> = room(sort.count, (0, 0, 0))?;
        // SAFETY: the operands have a number for each element, the first one for each line and one more, where it has lines.
        let first = |k: usize| unsafe { number(memory[0], k, false) };
        let mut line = 0;
        for (k, element) in elements.iter_mut().enumerate() {
            let of = if sort.lines == 0 {
                first(k)
            } else {
                while line < sort.lines && first(line as usize + 1) - i64::from(sort.base) <= k as i64 {
                    line += 1;
                }
                if line == sort.lines {
                    return Err(Error::new(
                        Code::IllegalAddress,
                        "A sparse matrix has elements behind its last line",
                    ));
                }
                line as i64
            };
            // SAFETY: see above.
            let second = unsafe { number(memory[1], k, false) };
            // SAFETY: see above.
            let moved = if sort.permutation == 0 { 0 } else { unsafe { number(memory[2], k, false) } };
            *element = (of, second, moved);
        }
        if sort.by_second {
            elements.sort_by_key(|e| (e.1, e.0));
        } else {
            elements.sort_by_key(|e| (e.0, e.1));
        }
        for (k, &(of, second, moved)) in elements.iter().enumerate() {
            // SAFETY: see above.
            unsafe {
                if sort.lines == 0 {
                    set_number(memory[0], k, false, of);
                }
                set_number(memory[1], k, false, second);
                if sort.permutation != 0 {
                    set_number(memory[2], k, false, moved);
                }
            }
        }
        Ok(())
    }
}

/// What [`Iota`] comes to.
pub(crate) fn iota(operation: Iota) -> Result<Plan> {
    if operation.addr == 0 && operation.count > 0 {
        return crate::invalid("There is no place for the numbers");
    }
    let operands: Vec<Operand> = vec![list(operation.addr, operation.count, 4, true)?];
    Ok(Plan { operands, computation: Box::new(Count(operation.count)) })
}

struct Count(u64);

impl Computation for Count {
    unsafe fn run(&self, memory: &[*mut u8], _: usize, _: usize) -> Result<()> {
        for k in 0..self.0 as usize {
            // SAFETY: the operand has so many numbers.
            unsafe { set_number(memory[0], k, false, k as i64) };
        }
        Ok(())
    }
}
