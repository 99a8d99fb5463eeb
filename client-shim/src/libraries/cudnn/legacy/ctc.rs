//! The loss of connectionist temporal classification (CTC).

use rgpu_libraries::{DnnCtc, DnnTensor, DnnType};

use super::super::handles::stream_of;
use super::super::{In, Out, Result, Status};
use super::composer::ensure;
use super::forms::{Forms, created_and_destroyed};
use super::tensor::{Tensor, tensor};
use super::{calls, not_written};
use crate::libraries::math::Queue;

/// What a loss's descriptor says.
#[derive(Debug, Clone, Copy)]
struct Ctc {
    /// The type that is computed in, which is 32-bit floating point (`cudnnDataType_t`).
    kind: u32,
    /// Whether a softmax comes first (`cudnnLossNormalizationMode_t`).
    normalization: u32,
    /// What becomes of gradients of impossible labels (`cudnnCTCGradMode_t`), or what older calls say in this place.
    gradient: u32,
    /// Whether that is a `cudnnCTCGradMode_t` that leaves such gradients as they are.
    skips: bool,
    /// The most labels of a sequence.
    most: i32,
}

static LOSSES: Forms<Ctc> = Forms::new("cuDNN CTC loss descriptor");
created_and_destroyed!(LOSSES, cudnnCreateCTCLossDescriptor, cudnnDestroyCTCLossDescriptor);

/// The most labels that cuDNN has for a sequence.
const MOST: i32 = 256;

fn set(raw: usize, said: Ctc) -> Result<()> {
    ensure(said.normalization <= 1 && said.gradient <= 1 && (0..=MOST).contains(&said.most))?;
    if said.kind != DnnType::F32 as u32 {
        return Err(not_written("CTC losses that are computed in other types than 32-bit floating point"));
    }
    LOSSES.set(raw, said)
}

/// A tensor in the device's memory.
fn given(tensor: Tensor, addr: usize) -> DnnTensor {
    let Tensor { kind, dims, strides } = tensor;
    DnnTensor { addr: addr as u64, kind, dims, strides, value: None }
}

/// A loss whose labels are not known yet.
fn loss(
    handle: usize,
    said: Ctc,
    (form, probabilities): (usize, usize),
    (gradient_form, gradient): (usize, usize),
    algorithm: u32,
) -> Result<DnnCtc> {
    stream_of(handle)?;
    let of = tensor(form)?;
    ensure(algorithm <= 1 && of.dims.len() == 3)?;
    if of.kind != DnnType::F32 {
        return Err(not_written("CTC losses of other types than 32-bit floating point"));
    }
    let wanted = gradient_form != 0;
    let of_gradient = if wanted { tensor(gradient_form)? } else { of.clone() };
    ensure(of_gradient.dims == of.dims && of_gradient.kind == of.kind)?;
    Ok(DnnCtc {
        probabilities: given(of, probabilities),
        softmax: said.normalization == 1,
        gradient: given(of_gradient, gradient),
        skips: said.skips,
        ..DnnCtc::default()
    })
}

fn there(addresses: &[usize]) -> Result<()> {
    if addresses.contains(&0) { Err(Status::NullPointer) } else { Ok(()) }
}

/// The loss with labels of the program's memory, which are checked.
///
/// # Safety
/// There are so many lengths as sequences, and so many labels as these say.
unsafe fn with_labels(loss: DnnCtc, labels: In<i32>, lengths: In<i32>, steps: In<i32>) -> Result<DnnCtc> {
    let [most_steps, count, symbols] = [0, 1, 2].map(|axis| loss.probabilities.dims[axis]);
    // SAFETY: the caller's promise.
    let (label_lengths, input_lengths) =
        unsafe { (lengths.list(count as usize)?, steps.list(count as usize)?) };
    let long = |&n: &i32| (0..=most_steps).contains(&i64::from(n));
    ensure(label_lengths.iter().all(|n| (0..=MOST).contains(n)) && input_lengths.iter().all(long))?;
    let all: usize = label_lengths.iter().map(|&n| n as usize).sum();
    // SAFETY: the caller's promise.
    let labels = unsafe { labels.list(all) }?;
    ensure(labels.iter().all(|&label| (1..symbols).contains(&i64::from(label))))?;
    Ok(DnnCtc { labels, label_lengths, input_lengths, ..loss })
}

/// Tells what all versions of a descriptor say, and gives the rest.
fn tell(raw: usize, kind: Out<u32>, normalization: Out<u32>, gradient: Out<u32>) -> Result<Ctc> {
    let said = LOSSES.get(raw)?;
    kind.set(said.kind)?;
    normalization.set(said.normalization)?;
    gradient.set(said.gradient)?;
    Ok(said)
}

calls! {
    /// `cudnnSetCTCLossDescriptor`.
    fn cudnnSetCTCLossDescriptor(raw: usize, kind: u32) {
        set(raw, Ctc { kind, normalization: 0, gradient: 0, skips: false, most: MOST })
    }
    /// `cudnnSetCTCLossDescriptorEx`. Whether numbers that are none are passed on changes nothing.
    fn cudnnSetCTCLossDescriptorEx(raw: usize, kind: u32, normalization: u32, gradient: u32) {
        set(raw, Ctc { kind, normalization, gradient, skips: false, most: MOST })
    }
    /// `cudnnSetCTCLossDescriptor_v8`.
    fn cudnnSetCTCLossDescriptor_v8(raw: usize, kind: u32, normalization: u32, gradient: u32, most: i32) {
        set(raw, Ctc { kind, normalization, gradient, skips: false, most })
    }
    /// `cudnnSetCTCLossDescriptor_v9`.
    fn cudnnSetCTCLossDescriptor_v9(raw: usize, kind: u32, normalization: u32, gradient: u32, most: i32) {
        set(raw, Ctc { kind, normalization, gradient, skips: gradient == 1, most })
    }
    /// `cudnnGetCTCLossDescriptor`.
    fn cudnnGetCTCLossDescriptor(raw: usize, kind: Out<u32>) {
        kind.set(LOSSES.get(raw)?.kind)
    }
    /// `cudnnGetCTCLossDescriptorEx`.
    fn cudnnGetCTCLossDescriptorEx(raw: usize, kind: Out<u32>, normalization: Out<u32>, gradient: Out<u32>) {
        tell(raw, kind, normalization, gradient).map(drop)
    }
    /// `cudnnGetCTCLossDescriptor_v8`.
    fn cudnnGetCTCLossDescriptor_v8(
        raw: usize, kind: Out<u32>, normalization: Out<u32>, gradient: Out<u32>, most: Out<i32>,
    ) {
        most.set(tell(raw, kind, normalization, gradient)?.most)
    }
    /// `cudnnGetCTCLossDescriptor_v9`.
    fn cudnnGetCTCLossDescriptor_v9(
        raw: usize, kind: Out<u32>, normalization: Out<u32>, gradient: Out<u32>, most: Out<i32>,
    ) {
        most.set(tell(raw, kind, normalization, gradient)?.most)
    }
    /// `cudnnGetCTCLossWorkspaceSize`: none is needed.
    fn cudnnGetCTCLossWorkspaceSize(
        handle: usize, form: usize, gradient_form: usize, labels: In<i32>, label_lengths: In<i32>,
        input_lengths: In<i32>, algorithm: u32, raw: usize, size: Out<usize>,
    ) {
        let loss = loss(handle, LOSSES.get(raw)?, (form, 0), (gradient_form, 0), algorithm)?;
        // SAFETY: by the call's description, there are as many.
        unsafe { with_labels(loss, labels, label_lengths, input_lengths)? };
        size.set(0)
    }
    /// `cudnnGetCTCLossWorkspaceSize_v8`: none is needed.
    fn cudnnGetCTCLossWorkspaceSize_v8(
        handle: usize, algorithm: u32, raw: usize, form: usize, gradient_form: usize, size: Out<usize>,
    ) {
        loss(handle, LOSSES.get(raw)?, (form, 0), (gradient_form, 0), algorithm)?;
        size.set(0)
    }
    /// `cudnnCTCLoss`. The loss of labels that are impossible is infinite.
    fn cudnnCTCLoss(
        handle: usize, form: usize, probabilities: usize, labels: In<i32>, label_lengths: In<i32>,
        input_lengths: In<i32>, costs: usize, gradient_form: usize, gradient: usize, algorithm: u32, raw: usize,
        _work: usize, _size: usize,
    ) {
        let gradient_form = if gradient == 0 { 0 } else { gradient_form };
        let loss = loss(handle, LOSSES.get(raw)?, (form, probabilities), (gradient_form, gradient), algorithm)?;
        there(&[probabilities, costs])?;
        // SAFETY: by the call's description, there are as many.
        let loss = unsafe { with_labels(loss, labels, label_lengths, input_lengths)? };
        let loss = DnnCtc { costs: costs as u64, ..loss };
        Ok(Queue::of(stream_of(handle)?)?.post(&loss)?)
    }
    /// `cudnnCTCLoss_v8`, whose labels and lengths are in device memory.
    fn cudnnCTCLoss_v8(
        handle: usize, algorithm: u32, raw: usize, form: usize, probabilities: usize, labels: usize,
        label_lengths: usize, input_lengths: usize, costs: usize, gradient_form: usize, gradient: usize, _size: usize,
        _work: usize,
    ) {
        let gradient_form = if gradient == 0 { 0 } else { gradient_form };
        let loss = loss(handle, LOSSES.get(raw)?, (form, probabilities), (gradient_form, gradient), algorithm)?;
        there(&[probabilities, labels, label_lengths, input_lengths, costs])?;
        Ok(Queue::of(stream_of(handle)?)?.post(&DnnCtc {
            costs: costs as u64,
            labels_at: labels as u64,
            label_lengths_at: label_lengths as u64,
            input_lengths_at: input_lengths as u64,
            ..loss
        })?)
    }
}
