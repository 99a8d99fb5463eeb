//! Descriptors of sequences, which recurrent networks get and give.

use rgpu_libraries::{DnnSequenceLayout, DnnType};

use super::super::{In, Out, Result, Status};
use super::composer::ensure;
use super::forms::{Forms, created_and_destroyed};
use super::{calls, type_of};

/// What a descriptor of sequences says.
#[derive(Debug, Clone)]
pub(super) struct Sequences {
    /// The elements' type.
    pub(super) kind: DnnType,
    /// How the sequences lie.
    pub(super) layout: DnnSequenceLayout,
    /// The room for steps of each of them.
    pub(super) steps: u64,
    /// Elements of each step.
    pub(super) width: u64,
    /// How many steps each of them has.
    pub(super) lengths: Vec<u32>,
    /// What is written behind their ends.
    pub(super) fill: Option<f64>,
}

static SEQUENCES: Forms<Sequences> = Forms::new("cuDNN RNN data descriptor");
created_and_destroyed!(SEQUENCES, cudnnCreateRNNDataDescriptor, cudnnDestroyRNNDataDescriptor);

/// What a descriptor says.
pub(super) fn sequences(raw: usize) -> Result<Sequences> {
    SEQUENCES.get(raw)
}

/// A number of the type, at an address.
fn number(kind: DnnType, at: In<u8>) -> Result<Option<f64>> {
    if at.is_null() {
        return Ok(None);
    }
    // SAFETY: by the call's description, a number of the descriptor's type lies there.
    let value = unsafe {
        match kind {
            DnnType::F32 => f64::from(at.cast::<f32>().get()?),
            DnnType::F64 => at.cast::<f64>().get()?,
            DnnType::F16 => half::f16::from_bits(at.cast::<u16>().get()?).to_f64(),
            DnnType::Bf16 => half::bf16::from_bits(at.cast::<u16>().get()?).to_f64(),
            _ => return Err(Status::NotSupported),
        }
    };
    Ok(Some(value))
}

calls! {
    /// `cudnnSetRNNDataDescriptor`.
    fn cudnnSetRNNDataDescriptor(
        raw: usize, kind: u32, layout: u32, steps: i32, count: i32, width: i32, lengths: In<i32>, fill: In<u8>,
    ) {
        let kind = type_of(kind)?;
        let layout = DnnSequenceLayout::from_number(layout).ok_or(Status::BadParam)?;
        ensure(steps > 0 && count > 0 && width > 0)?;
        // SAFETY: by the call's description, so many are there.
        let given = unsafe { lengths.list(count as usize) }?;
        let length = |&n: &i32| u32::try_from(n).ok().filter(|_| n <= steps).ok_or(Status::BadParam);
        let lengths: Vec<u32> = given.iter().map(length).collect::<Result<_>>()?;
        // In a packed layout a sequence's number is its place among those that go on, so the longest come first.
        ensure(layout != DnnSequenceLayout::Packed || lengths.is_sorted_by(|a, b| a >= b))?;
        let (steps, width, fill) = (steps as u64, width as u64, number(kind, fill)?);
        SEQUENCES.set(raw, Sequences { kind, layout, steps, width, lengths, fill })
    }
    /// `cudnnGetRNNDataDescriptor`.
    fn cudnnGetRNNDataDescriptor(
        raw: usize, kind: Out<u32>, layout: Out<u32>, steps: Out<i32>, count: Out<i32>, width: Out<i32>, wanted: i32,
        lengths: Out<i32>, fill: Out<u8>,
    ) {
        let said = sequences(raw)?;
        kind.set(said.kind as u32)?;
        layout.set(said.layout as u32)?;
        steps.set(said.steps as i32)?;
        count.set(said.lengths.len() as i32)?;
        width.set(said.width as i32)?;
        let wanted = usize::try_from(wanted).map_err(|_| Status::BadParam)?;
        for (index, &length) in said.lengths.iter().take(wanted).enumerate() {
            // SAFETY: by the call's description, there is room for as many as are wanted.
            unsafe { lengths.at(index) }.set(length as i32)?;
        }
        if let (Some(value), false) = (said.fill, fill.is_null()) {
            // SAFETY: by the call's description, there is room for a number of the type.
            unsafe {
                match said.kind {
                    DnnType::F64 => fill.cast::<f64>().set(value)?,
                    DnnType::F16 => fill.cast::<u16>().set(half::f16::from_f64(value).to_bits())?,
                    DnnType::Bf16 => fill.cast::<u16>().set(half::bf16::from_f64(value).to_bits())?,
                    _ => fill.cast::<f32>().set(value as f32)?,
                }
            }
        }
        Ok(())
    }
}
