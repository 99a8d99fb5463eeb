//! The code of phases: the copies, what chooses between them, and what the executor is told.

use std::mem::offset_of;

use super::super::flow::Refusal;
use super::super::rows::{common_place, next_place};
use super::super::translate::{Translator, all_lanes, scalar_type};
use super::{ELSEWHERE, ENDED, MASK, Phases, Stop, bit, edge_of};
use crate::abi::{self, Block, MOST_LANES, Row, Thread};

/// The most groups that a block has: so many bytes tell which lanes of each wait at a cut.
const MOST_WARPS: usize = abi::MAX_THREADS / abi::WARP;
/// The same as words of the lanes of a warp each.
const WORDS: &str = "<32 x i32>";
/// After so many phases the executor may look whether the grid goes on at all.
const TURNS: u32 = 1000;

impl<const LANES: usize> Translator<'_, LANES> {
    /// What is known of the barriers.
    fn phases(&self) -> Result<&Phases, Refusal> {
        self.phases.as_ref().ok_or_else(|| "no phases".into())
    }

    /// Which edge of a block is taken in the copy that is being written, where that is known before, and by which lanes, as bits.
    pub(in super::super) fn enters(&mut self, number: usize) -> Option<(usize, String)> {
        let phases = self.phases.as_ref()?;
        let cut = self.copies[self.copy].enters.filter(|_| number == phases.dispatch)?;
        let lanes = if phases.is_split(cut) { self.lanes_that_go() } else { self.bits.clone() };
        Some((edge_of(cut), lanes))
    }

    /// Whether a part of a group may be in a block of the copy that is being written.
    pub(in super::super) fn is_partial(&self, number: usize) -> bool {
        let copy = self.copies[self.copy].enters.zip(self.phases.as_ref());
        let split = copy.is_some_and(|(cut, phases)| phases.is_split(cut) && !phases.before[number]);
        split || self.shapes.partial[number]
    }

    /// The lanes of the group that go through the copy which is being written, as bits.
    pub(in super::super) fn lanes_that_go(&mut self) -> String {
        let group = self.make("load i64, ptr %group");
        let at = self.make(format!("getelementptr i{LANES}, ptr %goes, i64 {group}"));
        self.make(format!("load i{LANES}, ptr {at}"))
    }

    /// All copies, and what leads from one to another. `end` is the end of the threads.
    pub(in super::super) fn all_phases(&mut self, end: &str) -> Result<(), Refusal> {
        let rows = self.phases()?.cuts + 1;
        self.places.push_str(&format!(
            "%waits = alloca [{rows} x {WORDS}], align 32\n%goes = alloca {WORDS}, align 32\n\
             %stops = alloca i128\n%converge = alloca i1\n%turns = alloca i32\n%warp = alloca i64\n%chosen = alloca i64\n%made = alloca i32\n%rest = alloca i128\n%some = alloca i64\n"
        ));
        for row in 0..rows {
            self.nobody_waits(&row.to_string());
        }
        for (offset, ty) in self.common()? {
            for place in [common_place(offset), next_place(offset)] {
                self.places.push_str(&format!("{place} = alloca {ty}\n"));
            }
        }
        self.places.push_str("%taken = alloca i1\n");
        let sides: Vec<String> = (0..3)
            .map(|side| {
                let at = self.pointer("%a2", (offset_of!(Block, ntid) + 4 * side) as i64);
                self.make(format!("load i32, ptr {at}, align 4"))
            })
            .collect();
        let plane = self.make(format!("mul i32 {}, {}", sides[0], sides[1]));
        let all = self.make(format!("mul i32 {plane}, {}", sides[2]));
        let mut whole = self.make(format!("icmp eq i32 %a1, {all}"));
        let rest = self.make(format!("and i32 %a1, {}", abi::WARP - 1));
        self.line(format!("%warps = icmp eq i32 {rest}, 0"));
        if self.phases()?.exchanges | self.phases()?.named != 0 {
            whole = self.make(format!("and i1 {whole}, %warps"));
        }
        let at = self.pointer("%a2", offset_of!(Block, together) as i64);
        let known = self.make(format!("load i32, ptr {at}, align 4"));
        let words = self.make(format!("add i32 %a1, {}", abi::WARP - 1));
        let words = self.make(format!("lshr i32 {words}, {}", abi::WARP.trailing_zeros()));
        self.line(format!("%words = zext i32 {words} to i64"));
        self.line(format!(
            "store i128 0, ptr %stops\nstore i32 {TURNS}, ptr %turns\nstore i1 false, ptr %taken"
        ));
        self.all_go();
        self.line(format!("br i1 {whole}, label %known, label %phase0"));
        self.begin("known");
        self.take_common("0")?;
        self.go_on_behind(&known, "phase0");
        for copy in 0..self.copies.len() {
            self.one_phase(copy, end)?;
        }
        self.choose(&whole)?;
        self.begin("leave");
        // Where all threads of the block have ended, that is all that the executor wants to know.
        let stops = self.make("load i128, ptr %stops");
        let ended = self.make(format!("icmp eq i128 {stops}, {ENDED}"));
        let gone = self.make(format!("and i1 {ended}, {whole}"));
        self.line(format!("br i1 {gone}, label %gone, label %stay"));
        self.begin("stay");
        self.settle(end)?;
        let lowest = self.lowest(&stops);
        let number = self.make(format!("trunc i64 {lowest} to i32"));
        let one = self.is_one_bit(&stops);
        let known = self.make(format!("icmp sge i128 {stops}, 0"));
        let alike = self.make(format!("and i1 {one}, {known}"));
        let number = self.make(format!("select i1 {alike}, i32 {number}, i32 {}", abi::APART));
        self.line(format!("store i32 {number}, ptr %together\nbr label %told"));
        self.begin("gone");
        // No thread has a row that says how it stopped, so none is the last one that ran.
        let at = self.pointer("%a2", offset_of!(Block, cursor) as i64);
        self.line(format!("store ptr null, ptr {at}\nstore i32 {}, ptr %together", abi::STOP_EXIT));
        self.line("br label %told");
        self.begin("told");
        self.tell_together();
        self.line("ret void");
        Ok(())
    }

    /// A copy, and what is noted behind it.
    fn one_phase(&mut self, copy: usize, end: &str) -> Result<(), Refusal> {
        let common = if self.copies[copy].enters.is_some() { self.common()? } else { Vec::new() };
        self.begin(&format!("phase{copy}"));
        for &(offset, ty) in &common {
            self.copy_place(ty, &common_place(offset), &next_place(offset));
        }
        self.line(format!("br label %copy{copy}"));
        self.one_copy(copy, end)?;
        for &(offset, ty) in &common {
            self.copy_place(ty, &next_place(offset), &common_place(offset));
        }
        if self.copies[copy].enters.is_none() {
            // Each group has left its own in its row.
            self.line("store i1 false, ptr %taken");
        }
        let mut stops = self.make("load i128, ptr %stops");
        for stop in std::mem::take(&mut self.noted) {
            let stopped = self.make(format!("load i1, ptr %stopped{copy}.{stop}"));
            self.line(format!("store i1 false, ptr %stopped{copy}.{stop}"));
            let own = self.make(format!("select i1 {stopped}, i128 {}, i128 0", bit(stop) as i128));
            stops = self.make(format!("or i128 {stops}, {own}"));
        }
        self.line(format!("store i128 {stops}, ptr %stops\nbr label %next"));
        Ok(())
    }

    /// The values that all threads of the block have in one place, by their offsets in the state, and their types.
    fn common(&self) -> Result<Vec<(i32, &'static str)>, Refusal> {
        self.phases()?.common.iter().map(|(&offset, &ty)| Ok((offset, scalar_type(ty)?))).collect()
    }

    /// Copies what one place holds to another.
    fn copy_place(&mut self, ty: &str, from: &str, to: &str) {
        let value = self.make(format!("load {ty}, ptr {from}"));
        self.line(format!("store {ty} {value}, ptr {to}"));
    }

    /// Takes the values that all threads of the block have in one place out of the row of a group that waits.
    fn take_common(&mut self, group: &str) -> Result<(), Refusal> {
        let row = self.row_address(group);
        for (offset, ty) in self.common()? {
            let at = self.in_row_at(&row, offset);
            let value = self.make(format!("load {ty}, ptr {at}"));
            self.line(format!("store {ty} {value}, ptr {}", common_place(offset)));
        }
        self.line("store i1 true, ptr %taken");
        Ok(())
    }

    /// Has those values at hand that all threads of the block have in one place, also behind the copy in which each group has its own.
    fn have_common(&mut self) -> Result<(), Refusal> {
        if self.phases()?.common.is_empty() {
            return Ok(());
        }
        let taken = self.make("load i1, ptr %taken");
        self.line(format!("br i1 {taken}, label %go.behind, label %go.take"));
        self.begin("go.take");
        self.line("store i64 0, ptr %warp\nbr label %go.look");
        self.begin("go.look");
        let warp = self.make("load i64, ptr %warp");
        let at = self.make(format!("getelementptr i32, ptr %goes, i64 {warp}"));
        let goes = self.make(format!("load i32, ptr {at}"));
        let any = self.make(format!("icmp ne i32 {goes}, 0"));
        self.line(format!("br i1 {any}, label %go.found, label %go.next"));
        self.begin("go.next");
        self.next_warp(&warp, "go.look", "leave");
        self.begin("go.found");
        self.declared.insert("declare i32 @llvm.cttz.i32(i32, i1)\n".into());
        let lane = self.make(format!("call i32 @llvm.cttz.i32(i32 {goes}, i1 true)"));
        let group = self.make(format!("lshr i32 {lane}, {}", LANES.trailing_zeros()));
        let group = self.make(format!("zext i32 {group} to i64"));
        let groups = self.make(format!("mul i64 {warp}, {}", abi::WARP / LANES));
        let group = self.make(format!("add i64 {groups}, {group}"));
        self.take_common(&group)?;
        self.line("br label %go.behind");
        self.begin("go.behind");
        Ok(())
    }

    /// Chooses which copy is next, and for whom.
    fn choose(&mut self, whole: &str) -> Result<(), Refusal> {
        self.begin("next");
        let left = self.make("load i32, ptr %turns");
        let left = self.make(format!("sub i32 {left}, 1"));
        self.line(format!("store i32 {left}, ptr %turns"));
        let more = self.make(format!("icmp ne i32 {left}, 0"));
        let stops = self.make("load i128, ptr %stops");
        let known = self.make(format!("icmp sge i128 {stops}, 0"));
        let more = self.make(format!("and i1 {more}, {whole}"));
        let more = self.make(format!("and i1 {more}, {known}"));
        self.line(format!("br i1 {more}, label %look, label %leave"));
        self.begin("look");
        let one = self.is_one_bit(&stops);
        self.line(format!("br i1 {one}, label %all.stop, label %look.converging"));
        self.all_alike(&stops)?;
        self.converging(&stops)?;
        self.begin("look.barrier");
        self.line("br i1 %warps, label %look.others, label %leave");
        self.begin("look.others");
        let others = self.make(format!("and i128 {stops}, {}", !ENDED as i128));
        self.at_one_barrier(&stops, &others)?;
        self.whole_warps(&stops, &others)?;
        self.go_on()
    }

    /// Goes on behind a stop, for those lanes for which that was noted.
    fn choose_for_some(&mut self, number: &str) {
        self.line(format!("store i64 {number}, ptr %chosen\nbr label %some.exchange"));
    }

    /// Where all threads have stopped alike.
    fn all_alike(&mut self, stops: &str) -> Result<(), Refusal> {
        let named = self.phases()?.named;
        self.begin("all.stop");
        let number = self.lowest(stops);
        let ended = self.make(format!("icmp eq i64 {number}, {}", abi::STOP_EXIT));
        self.line(format!("br i1 {ended}, label %gone, label %all.look"));
        self.begin("all.look");
        let one_by_one = self.is_among(&number, named);
        self.line(format!("br i1 {one_by_one}, label %look.others, label %all.go"));
        self.begin("all.go");
        self.line("store i128 0, ptr %stops");
        self.nobody_waits(&number);
        self.all_go();
        self.line(format!("store i64 {number}, ptr %chosen\nbr label %all.exchange"));
        Ok(())
    }

    /// Where lanes of a warp go on without the others, of which some may have come farther: those first that are the least far. What others do as
    /// a warp, or some of one, may lead them there, too, and comes before.
    fn converging(&mut self, stops: &str) -> Result<(), Refusal> {
        let Phases { converging, of_warps, masks, .. } = *self.phases()?;
        self.begin("look.converging");
        let found = self.make(format!("and i128 {stops}, {}", converging as i128));
        let any = self.make(format!("icmp ne i128 {found}, 0"));
        self.line(format!(
            "store i1 {any}, ptr %converge\nbr i1 {any}, label %some.others, label %look.barrier"
        ));
        self.begin("some.others");
        let warps = self.make(format!("and i128 {stops}, {}", of_warps as i128));
        let any = self.make(format!("icmp ne i128 {warps}, 0"));
        self.line(format!("store i128 {warps}, ptr %rest\nbr i1 {any}, label %some.warps, label %some.stop"));
        self.begin("some.warps");
        self.line("br i1 %warps, label %warps.look, label %leave");
        // None of them has come whole, and only the executor knows for whom those wait that name others.
        self.begin("some.none");
        let unknown = self.make(format!("and i128 {stops}, {}", masks as i128));
        let any = self.make(format!("icmp ne i128 {unknown}, 0"));
        self.line(format!("br i1 {any}, label %leave, label %some.stop"));
        self.begin("some.stop");
        let found = self.make(format!("and i128 {stops}, {}", converging as i128));
        let number = self.lowest(&found);
        let rest = self.without_lowest(&found);
        let own = self.make(format!("xor i128 {found}, {rest}"));
        let stops_left = self.make(format!("xor i128 {stops}, {own}"));
        self.line(format!("store i128 {stops_left}, ptr %stops"));
        self.each_warp("converge", &number, |t, waiting, at| {
            t.line(format!("store i32 0, ptr {at}"));
            Ok(waiting.to_owned())
        })?;
        self.choose_for_some(&number);
        Ok(())
    }

    /// Where all that have not ended (`others` are their stops) are at one barrier, and no group has ended in part.
    fn at_one_barrier(&mut self, stops: &str, others: &str) -> Result<(), Refusal> {
        let barriers = self.phases()?.barriers;
        let one = self.is_one_bit(others);
        let found = self.make(format!("and i128 {others}, {}", barriers as i128));
        let any = self.make(format!("icmp ne i128 {found}, 0"));
        let one = self.make(format!("and i1 {one}, {any}"));
        self.line(format!("br i1 {one}, label %block.stop, label %look.warps"));
        self.begin("block.stop");
        let number = self.lowest(others);
        self.line("store i64 0, ptr %some");
        self.each_warp("block", &number, |t, waiting, _| {
            // Groups whose first lane waits, as if all of their lanes did.
            let group = u32::MAX >> (abi::WARP - LANES);
            let first = t.make(format!("and i32 {waiting}, {}", u32::MAX / group));
            let all = t.make(format!("mul i32 {first}, {group}"));
            let parts = t.make(format!("xor i32 {all}, {waiting}"));
            let parts = t.make(format!("zext i32 {parts} to i64"));
            let before = t.make("load i64, ptr %some");
            let parts = t.make(format!("or i64 {before}, {parts}"));
            t.line(format!("store i64 {parts}, ptr %some"));
            Ok(waiting.to_owned())
        })?;
        let parts = self.make("load i64, ptr %some");
        let any = self.make(format!("icmp ne i64 {parts}, 0"));
        self.line(format!("br i1 {any}, label %leave, label %block.go"));
        self.begin("block.go");
        self.nobody_waits(&number);
        let ended = self.make(format!("and i128 {stops}, {ENDED}"));
        self.line(format!("store i128 {ended}, ptr %stops"));
        self.choose_for_some(&number);
        Ok(())
    }

    /// Where whole warps do something: those of them go on that are there whole.
    fn whole_warps(&mut self, stops: &str, others: &str) -> Result<(), Refusal> {
        let Phases { of_warps, named, .. } = *self.phases()?;
        self.begin("look.warps");
        let found = self.make(format!("and i128 {others}, {}", of_warps as i128));
        self.line(format!("store i128 {found}, ptr %rest\nbr label %warps.look"));
        self.begin("warps.look");
        let found = self.make("load i128, ptr %rest");
        let any = self.make(format!("icmp ne i128 {found}, 0"));
        self.line(format!("br i1 {any}, label %warps.stop, label %warps.none"));
        self.begin("warps.none");
        let converge = self.make("load i1, ptr %converge");
        self.line(format!("br i1 {converge}, label %some.none, label %leave"));
        self.begin("warps.stop");
        let number = self.lowest(&found);
        let next = self.without_lowest(&found);
        let own = self.make(format!("xor i128 {found}, {next}"));
        // In the lower half whether a warp goes on, in the upper one whether lanes stay.
        self.line(format!("store i128 {next}, ptr %rest\nstore i64 0, ptr %some"));
        let by_name = self.is_among(&number, named);
        self.each_warp("warps", &number, |t, waiting, at| {
            let is_whole = t.make(format!("icmp eq i32 {waiting}, -1"));
            let goes = t.make(format!("sext i1 {is_whole} to i32"));
            let goes = if named == 0 { goes } else { t.exchange_by_name(&goes, waiting, &by_name, &number)? };
            let stays = t.make(format!("xor i32 {waiting}, {goes}"));
            t.line(format!("store i32 {stays}, ptr {at}"));
            let low = t.make(format!("zext i32 {goes} to i64"));
            let high = t.make(format!("zext i32 {stays} to i64"));
            let high = t.make(format!("shl i64 {high}, 32"));
            let before = t.make("load i64, ptr %some");
            let low = t.make(format!("or i64 {before}, {low}"));
            let both = t.make(format!("or i64 {low}, {high}"));
            t.line(format!("store i64 {both}, ptr %some"));
            Ok(goes)
        })?;
        let both = self.make("load i64, ptr %some");
        let goes = self.make(format!("trunc i64 {both} to i32"));
        let any = self.make(format!("icmp ne i32 {goes}, 0"));
        self.line(format!("br i1 {any}, label %warps.go, label %warps.look"));
        self.begin("warps.go");
        let stays = self.make(format!("icmp ugt i64 {both}, {}", u32::MAX));
        let without = self.make(format!("xor i128 {stops}, {own}"));
        let left = self.make(format!("select i1 {stays}, i128 {stops}, i128 {without}"));
        self.line(format!("store i128 {left}, ptr %stops"));
        self.choose_for_some(&number);
        Ok(())
    }

    /// Goes on behind the stop that was chosen, when the warps that go on have made the operation that they have come to there.
    fn go_on(&mut self) -> Result<(), Refusal> {
        let Phases { exchanges, reduces, .. } = *self.phases()?;
        self.begin("all.exchange");
        let number = self.make("load i64, ptr %chosen");
        let exchange = self.is_among(&number, exchanges | reduces);
        self.line(format!("br i1 {exchange}, label %all.make, label %go"));
        self.begin("all.make");
        self.exchange("%a0", "%a1");
        self.line("br label %go");
        self.begin("some.exchange");
        let number = self.make("load i64, ptr %chosen");
        let exchange = self.is_among(&number, exchanges);
        self.line("store i64 0, ptr %warp");
        self.line(format!("br i1 {exchange}, label %some.each, label %go"));
        self.begin("some.each");
        let warp = self.make("load i64, ptr %warp");
        let at = self.make(format!("getelementptr i32, ptr %goes, i64 {warp}"));
        let goes = self.make(format!("load i32, ptr {at}"));
        let any = self.make(format!("icmp ne i32 {goes}, 0"));
        self.line(format!("br i1 {any}, label %some.make, label %some.next"));
        self.begin("some.make");
        let first = self.first_of_warp(&warp);
        self.exchange(&first, &abi::WARP.to_string());
        self.line("br label %some.next");
        self.begin("some.next");
        self.next_warp(&warp, "some.each", "go");
        self.begin("go");
        self.have_common()?;
        let number = self.make("load i64, ptr %chosen");
        let number = self.make(format!("trunc i64 {number} to i32"));
        self.go_on_behind(&number, "leave");
        Ok(())
    }

    /// Whether the number of a stop is in a set.
    fn is_among(&mut self, number: &str, set: u128) -> String {
        let number = self.make(format!("zext i64 {number} to i128"));
        let own = self.make(format!("shl i128 1, {number}"));
        let found = self.make(format!("and i128 {own}, {}", set as i128));
        self.make(format!("icmp ne i128 {found}, 0"))
    }

    /// All lanes go through the next copy.
    fn all_go(&mut self) {
        let all = vec!["i32 -1"; MOST_WARPS].join(", ");
        self.line(format!("store {WORDS} <{all}>, ptr %goes, align 32"));
    }

    /// Goes through the warps of the block: `make` is given which lanes of one wait at a cut, as bits, and where that is noted, and says which of them
    /// go on.
    fn each_warp(
        &mut self,
        name: &str,
        number: &str,
        make: impl FnOnce(&mut Self, &str, &str) -> Result<String, Refusal>,
    ) -> Result<(), Refusal> {
        let row = self.waiting_at(number);
        self.line(format!("store i64 0, ptr %warp\nbr label %{name}.each"));
        self.begin(&format!("{name}.each"));
        let warp = self.make("load i64, ptr %warp");
        let at = self.make(format!("getelementptr i32, ptr {row}, i64 {warp}"));
        let waiting = self.make(format!("load i32, ptr {at}"));
        let goes = make(self, &waiting, &at)?;
        let at = self.make(format!("getelementptr i32, ptr %goes, i64 {warp}"));
        self.line(format!("store i32 {goes}, ptr {at}"));
        self.next_warp(&warp, &format!("{name}.each"), &format!("{name}.done"));
        self.begin(&format!("{name}.done"));
        Ok(())
    }

    /// Goes on with the next warp, as long as there is one.
    fn next_warp(&mut self, warp: &str, each: &str, done: &str) {
        let next = self.make(format!("add i64 {warp}, 1"));
        self.line(format!("store i64 {next}, ptr %warp"));
        let more = self.make(format!("icmp ult i64 {next}, %words"));
        self.line(format!("br i1 {more}, label %{each}, label %{done}"));
    }

    /// Whether a set of stops has one at most.
    fn is_one_bit(&mut self, stops: &str) -> String {
        let rest = self.without_lowest(stops);
        self.make(format!("icmp eq i128 {rest}, 0"))
    }

    /// A set of stops without the first of them.
    fn without_lowest(&mut self, stops: &str) -> String {
        let less = self.make(format!("sub i128 {stops}, 1"));
        self.make(format!("and i128 {stops}, {less}"))
    }

    /// The number of the first stop of a set.
    fn lowest(&mut self, stops: &str) -> String {
        self.declared.insert("declare i128 @llvm.cttz.i128(i128, i1)\n".into());
        let number = self.make(format!("call i128 @llvm.cttz.i128(i128 {stops}, i1 false)"));
        self.make(format!("trunc i128 {number} to i64"))
    }

    /// Has the warps of some threads make the operation that they have come to.
    fn exchange(&mut self, first: &str, count: &str) {
        let number = self.make("load i64, ptr %chosen");
        let cut = self.make(format!("trunc i64 {number} to i32"));
        let helper = self.function(self.own.helpers.exchange);
        let callee = self.make(format!("inttoptr i64 {helper} to ptr"));
        self.line(format!("call void {callee}(i64 %a2, i64 {first}, i32 {count}, i32 {cut})"));
    }

    /// Has the lanes of a warp that wait make an operation with those whom they name, if it is one of that kind. Which lanes go on: `whole` ones if it is
    /// none, and else those for which it was made.
    fn exchange_by_name(
        &mut self,
        whole: &str,
        waiting: &str,
        by_name: &str,
        number: &str,
    ) -> Result<String, Refusal> {
        self.line(format!("store i32 {whole}, ptr %made"));
        let any = self.make(format!("icmp ne i32 {waiting}, 0"));
        let make = self.make(format!("and i1 {any}, {by_name}"));
        self.line(format!("br i1 {make}, label %name.make, label %name.made"));
        self.begin("name.make");
        let warp = self.make("load i64, ptr %warp");
        let first = self.first_of_warp(&warp);
        let cut = self.make(format!("trunc i64 {number} to i32"));
        let helper = self.function(self.own.helpers.exchange_by_name);
        let callee = self.make(format!("inttoptr i64 {helper} to ptr"));
        let made = self.make(format!("call i32 {callee}(i64 %a2, i64 {first}, i32 {cut}, i32 {waiting})"));
        self.line(format!("store i32 {made}, ptr %made\nbr label %name.made"));
        self.begin("name.made");
        Ok(self.make("load i32, ptr %made"))
    }

    /// Goes to the copy behind a stop, or elsewhere if there is none.
    fn go_on_behind(&mut self, stopped: &str, elsewhere: &str) {
        let copies = self.copies.iter().enumerate().filter_map(|(n, copy)| Some((n, copy.enters?)));
        let copies: Vec<String> = copies.map(|(n, cut)| format!("i32 {cut}, label %phase{n}")).collect();
        self.line(format!("switch i32 {stopped}, label %{elsewhere} [ {} ]", copies.join(" ")));
    }

    /// The lanes that are there stop in a way that is known: nothing is written into their row yet.
    pub(in super::super) fn stop_late(&mut self, stop: Stop) {
        let number = stop.number();
        let at = self.waiting(&number.to_string());
        let mut lanes = self.bits.clone();
        if self.mask.is_some() {
            let before = self.make(format!("load i{LANES}, ptr {at}"));
            lanes = self.make(format!("or i{LANES} {before}, {lanes}"));
        }
        self.line(format!("store i{LANES} {lanes}, ptr {at}"));
        self.note(number);
    }

    /// The lanes that are there stop in a way that is not known: what they leave is in their row.
    pub(in super::super) fn stop_at_once(&mut self) {
        self.note(ELSEWHERE.trailing_zeros());
    }

    /// Notes that there are lanes which have stopped so. Behind the copy that is noted for all of its groups at once.
    fn note(&mut self, stop: u32) {
        let place = format!("%stopped{}.{stop}", self.copy);
        if self.noted.insert(stop) {
            self.places.push_str(&format!("{place} = alloca i1\nstore i1 false, ptr {place}\n"));
        }
        self.line(format!("store i1 true, ptr {place}"));
    }

    /// Where it is noted which lanes of the block wait at a cut.
    fn waiting_at(&mut self, number: &str) -> String {
        self.make(format!("getelementptr {WORDS}, ptr %waits, i64 {number}"))
    }

    /// Notes that no lane waits at a cut.
    fn nobody_waits(&mut self, number: &str) {
        let row = self.waiting_at(number);
        self.line(format!("store {WORDS} zeroinitializer, ptr {row}, align 32"));
    }

    /// The first thread of a warp.
    fn first_of_warp(&mut self, warp: &str) -> String {
        let bytes = self.make(format!("mul i64 {warp}, {}", abi::WARP * size_of::<Thread>()));
        self.make(format!("add i64 %a0, {bytes}"))
    }

    /// Where it is noted which lanes of the group wait at a cut.
    fn waiting(&mut self, number: &str) -> String {
        let row = self.waiting_at(number);
        let group = self.make("load i64, ptr %group");
        self.make(format!("getelementptr i{LANES}, ptr {row}, i64 {group}"))
    }

    /// Writes into the rows what is missing there.
    fn settle(&mut self, end: &str) -> Result<(), Refusal> {
        let Phases { exchanges, named, masks, reduces, ref names, .. } = *self.phases()?;
        let names = names.clone();
        self.begin_groups("%a0", "settle");
        let group = self.make("load i64, ptr %group");
        let row = self.row_address(&group);
        self.leave_common(&row)?;
        let stops = self.make("load i128, ptr %stops");
        let known = self.make(format!("and i128 {stops}, {}", !ELSEWHERE as i128));
        self.line(format!("store i128 {known}, ptr %rest\nbr label %late"));
        self.begin("late");
        let rest = self.make("load i128, ptr %rest");
        let any = self.make(format!("icmp ne i128 {rest}, 0"));
        self.line(format!("br i1 {any}, label %late.one, label %settled"));
        self.begin("late.one");
        let number = self.lowest(&rest);
        let less = self.without_lowest(&rest);
        self.line(format!("store i128 {less}, ptr %rest"));
        let at = self.waiting(&number);
        let lanes = self.make(format!("load i{LANES}, ptr {at}"));
        let any = self.make(format!("icmp ne i{LANES} {lanes}, 0"));
        self.line(format!("br i1 {any}, label %late.stop, label %late"));
        self.begin("late.stop");
        let mask = self.mask_of(&lanes);
        let one = self.make(format!("trunc i64 {number} to i32"));
        let numbers = self.in_all_lanes("i32", &one);
        self.blend(&row, offset_of!(Row, stop), "i32", &numbers, &mask);
        let ended = self.make(format!("icmp eq i32 {one}, {}", abi::STOP_EXIT));
        self.line(format!("br i1 {ended}, label %late, label %late.cut"));
        self.begin("late.cut");
        self.blend(&row, offset_of!(Row, resume), "i32", &numbers, &mask);
        let operand = |n: usize| offset_of!(Row, op) + 8 * MOST_LANES * n;
        let has_mask = self.is_among(&number, masks);
        self.line(format!("br i1 {has_mask}, label %late.masked, label %late.mask"));
        self.begin("late.mask");
        self.blend(&row, operand(MASK), "i64", &all_lanes::<LANES>("i64", u32::MAX), &mask);
        self.line("br label %late.masked");
        self.begin("late.masked");
        let has_operands = self.is_among(&number, exchanges | named | reduces);
        self.line(format!("br i1 {has_operands}, label %late, label %late.name"));
        self.begin("late.name");
        let mut name = "0".to_owned();
        for (cut, other) in names {
            let here = self.make(format!("icmp eq i64 {number}, {cut}"));
            name = self.make(format!("select i1 {here}, i64 {other}, i64 {name}"));
        }
        let names = self.in_all_lanes("i64", &name);
        self.blend(&row, operand(0), "i64", &names, &mask);
        self.blend(&row, operand(1), "i64", "zeroinitializer", &mask);
        self.line("br label %late");
        self.begin("settled");
        self.end_groups(end, "settle", "done");
        Ok(())
    }

    /// Writes into a row what all threads of the block have in one place.
    fn leave_common(&mut self, row: &str) -> Result<(), Refusal> {
        let common = self.common()?;
        if common.is_empty() {
            return Ok(());
        }
        let taken = self.make("load i1, ptr %taken");
        let labels = [self.label(), self.label()];
        self.line(format!("br i1 {taken}, label %{}, label %{}", labels[0], labels[1]));
        self.begin(&labels[0]);
        for (offset, ty) in common {
            let at = self.in_row_at(row, offset);
            self.copy_place(ty, &common_place(offset), &at);
        }
        self.line(format!("br label %{}", labels[1]));
        self.begin(&labels[1]);
        Ok(())
    }

    /// Writes what some lanes leave into a row.
    fn blend(&mut self, row: &str, offset: usize, ty: &str, new: &str, mask: &str) {
        let at = self.pointer(row, offset as i64);
        let all = format!("<{LANES} x {ty}>");
        let old = self.make(format!("load {all}, ptr {at}, align 32"));
        let both = self.make(format!("select <{LANES} x i1> {mask}, {all} {new}, {all} {old}"));
        self.line(format!("store {all} {both}, ptr {at}, align 32"));
    }
}
