//! Flame graphs: kernels, the source lines in them, and the lines that were inlined there, as wide as the time that they took.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::part::{Kernel, Line, Profile};

const WIDTH: f64 = 1200.0;
const HEIGHT: f64 = 18.0;
/// Letters are about so wide.
const LETTER: f64 = 6.6;

/// A stack, the outermost first.
fn stack(kernel: &Kernel, line: &Line) -> Vec<String> {
    let mut stack = vec![kernel.name.clone()];
    match line.source.is_empty() {
        true => stack.push(line.place()),
        false => stack.extend(line.source.iter().rev().cloned()),
    }
    stack
}

/// Each stack with its time in nanoseconds.
fn stacks(profile: &Profile) -> BTreeMap<Vec<String>, f64> {
    let mut stacks: BTreeMap<Vec<String>, f64> = BTreeMap::new();
    for kernel in &profile.kernels {
        for line in kernel.lines.iter().filter(|line| line.counts.warp_instructions > 0) {
            *stacks.entry(stack(kernel, line)).or_default() += kernel.time_of(&line.counts);
        }
    }
    stacks
}

/// The stacks as text: a line for each, its places with semicolons between, and its nanoseconds.
pub(super) fn folded(profile: &Profile) -> String {
    let mut text = String::new();
    for (stack, time) in stacks(profile) {
        let places: Vec<_> = stack.iter().map(|place| place.replace([';', '\n'], ":")).collect();
        let _ = writeln!(text, "{} {}", places.join(";"), time.round());
    }
    text
}

#[derive(Default)]
struct Node {
    time: f64,
    inner: BTreeMap<String, Node>,
}

impl Node {
    fn depth(&self) -> usize {
        1 + self.inner.values().map(Self::depth).max().unwrap_or(0)
    }

    fn draw(&self, name: &str, (x, depth): (f64, usize), (scale, all): (f64, f64), text: &mut String) {
        let width = self.time * scale;
        if width < 0.1 {
            return;
        }
        let y = HEIGHT * depth as f64;
        let hash = name.bytes().fold(7u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
        let (green, blue) = (90 + hash % 120, hash / 128 % 60);
        let title = format!("{name}: {:.3} ms, {:.1} %", self.time / 1e6, 100.0 * self.time / all);
        let shown: String = name.chars().take(((width - 6.0) / LETTER).max(0.0) as usize).collect();
        let _ = writeln!(
            text,
            "<g><title>{}</title><rect x=\"{x:.2}\" y=\"{y}\" width=\"{width:.2}\" height=\"{}\" fill=\"rgb(230,{green},{blue})\" rx=\"1\"/><text x=\"{:.2}\" y=\"{}\">{}</text></g>",
            escaped(&title),
            HEIGHT - 1.0,
            x + 3.0,
            y + 13.0,
            escaped(&shown)
        );
        let mut x = x;
        for (name, node) in &self.inner {
            node.draw(name, (x, depth + 1), (scale, all), text);
            x += node.time * scale;
        }
    }
}

fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;");
    text.chars().filter(|letter| !letter.is_control()).collect()
}

/// The flame graph.
pub(super) fn svg(profile: &Profile) -> String {
    let mut root = Node::default();
    for (stack, time) in stacks(profile) {
        root.time += time;
        let mut node = &mut root;
        for place in stack {
            node = node.inner.entry(place).or_default();
            node.time += time;
        }
    }
    let height = HEIGHT * root.depth() as f64;
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"monospace\" font-size=\"11\">\n"
    );
    let scale = WIDTH / root.time.max(f64::MIN_POSITIVE);
    root.draw("all kernels", (0.0, 0), (scale, root.time), &mut text);
    text + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::super::part::tests::example;
    use super::*;

    #[test]
    fn stacks_begin_with_the_kernel_and_end_with_what_was_inlined() {
        assert_eq!(folded(&example()), "k;a.cu:5;in.h:1 600\nk;a.cu:6 200\n");
    }

    #[test]
    fn boxes_are_as_wide_as_their_time() {
        let mut profile = example();
        profile.kernels[0].name = "k<int&>".into();
        let svg = svg(&profile);
        for part in
            ["<title>k&lt;int&amp;&gt;: 0.001 ms, 100.0 %</title>", "width=\"900.00\"", "width=\"300.00\""]
        {
            assert!(svg.contains(part), "{part}\nis not in\n{svg}");
        }
        assert_eq!(svg.matches("<g>").count(), svg.matches("</g>").count());
        assert_eq!(svg.matches("<rect").count(), 5);
        assert!(super::svg(&Profile::default()).ends_with("</svg>\n"));
    }
}
