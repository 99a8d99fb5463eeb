//! The statements by which threads deal with each other, as PTX.

use super::ops::Class;
use super::program::{REDUCTIONS, SHUFFLES, Statement, VOTES};
use super::write::Writer;

impl Writer {
    /// What threads do together.
    pub(super) fn between(&mut self, statement: &Statement) {
        use Statement as S;
        let mask = self.mask();
        match statement {
            S::Exchange { to, value, distance, barrier } => {
                self.used.place = true;
                let (value, to) = (self.operand(*value, 0), self.v(*to));
                self.line(format!(
                    "mov.u32 t0, place; shl.b32 t1, tid, 2; add.u32 t1, t1, t0; st.shared.u32 [t1], {value}; bar.sync {barrier}; \
                     add.u32 t1, tid, {distance}; rem.u32 t1, t1, threads; shl.b32 t1, t1, 2; add.u32 t1, t1, t0; \
                     ld.shared.u32 {to}, [t1]; bar.sync {barrier};"
                ));
            }
            S::WarpExchange { to, value, lanes } => {
                self.used.place = true;
                let (value, to) = (self.operand(*value, 0), self.v(*to));
                self.line(format!(
                    "mov.u32 t0, place; shl.b32 t1, tid, 2; add.u32 t1, t1, t0; st.shared.u32 [t1], {value}; bar.warp.sync {mask}; \
                     xor.b32 t1, tid, {lanes}; setp.ge.u32 q0, t1, threads; selp.b32 t1, tid, t1, q0; shl.b32 t1, t1, 2; \
                     add.u32 t1, t1, t0; ld.shared.u32 {to}, [t1]; bar.warp.sync {mask};"
                ));
            }
            S::Pause => self.line("nanosleep.u32 1;"),
            S::SplitBarrier(condition, v) => {
                self.used.place = true;
                let (other, end, v) = (self.label(), self.label(), self.v(*v));
                self.condition(*condition);
                self.line(format!(
                    "mov.u32 t0, place; shl.b32 t1, tid, 2; add.u32 t1, t1, t0; @q0 bra {other};\n\
                     add.u32 t2, {v}, 1; st.shared.u32 [t1], t2; barrier.sync 1; bra {end};\n\
                     {other}: st.shared.u32 [t1], {v}; barrier.sync 1;\n{end}:\n\
                     add.u32 t1, tid, 1; rem.u32 t1, t1, threads; shl.b32 t1, t1, 2; add.u32 t1, t1, t0; \
                     ld.shared.u32 {v}, [t1]; barrier.sync 2;"
                ));
            }
            S::Shuffle { mode, to, inside, value, by, width } => {
                let (value, by, to) = (self.operand(*value, 0), self.operand(*by, 1), self.v(*to));
                let name = SHUFFLES[*mode];
                let c = (32 - width) << 8 | if name == "up" { 0 } else { 31 };
                let to = match inside {
                    Some(p) => format!("{to}|{}", self.register(Class::P, *p)),
                    None => to,
                };
                self.line(format!("shfl.sync.{name}.b32 {to}, {value}, {by}, {c}, {mask};"));
            }
            S::Reduce { op, to, value } => {
                let (value, to) = (self.operand(*value, 0), self.v(*to));
                self.line(format!("redux.sync.{} {to}, {value}, {mask};", REDUCTIONS[*op]));
            }
            S::Vote { mode, to, condition } => {
                self.condition(*condition);
                let to = self.v(*to);
                self.line(match VOTES[*mode] {
                    "ballot" => format!("vote.sync.ballot.b32 {to}, q0, {mask};"),
                    name => format!("vote.sync.{name}.pred q1, q0, {mask}; selp.b32 {to}, 1, 0, q1;"),
                });
            }
            S::MatchAny { to, value } => {
                let (value, to) = (self.operand(*value, 0), self.v(*to));
                self.line(format!("and.b32 t0, {value}, 7; match.any.sync.b32 {to}, t0, {mask};"));
            }
            S::MatchAll { to, same, value } => {
                let (value, to, same) =
                    (self.operand(*value, 0), self.v(*to), self.register(Class::P, *same));
                self.line(format!("and.b32 t0, {value}, 1; match.all.sync.b32 {to}|{same}, t0, {mask};"));
            }
            S::BarrierReduce { mode, to, condition } => {
                self.condition(*condition);
                let to = self.v(*to);
                self.line(match mode {
                    0 => format!("bar.red.popc.u32 {to}, 0, q0;"),
                    1 => format!("bar.red.and.pred q1, 1, q0; selp.b32 {to}, 1, 0, q1;"),
                    _ => format!("bar.red.or.pred q1, 0, !q0; selp.b32 {to}, 1, 0, q1;"),
                });
            }
            S::Exit(condition) => {
                self.condition(*condition);
                self.line("@q0 exit;");
            }
            S::Return(condition, value) => {
                self.condition(*condition);
                let value = self.operand(*value, 0);
                self.line(format!("@q0 st.param.b32 [r], {value}; @q0 ret;"));
            }
            _ => {}
        }
    }
}
