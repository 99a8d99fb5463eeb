//! Plots as SVG files.

use std::path::Path;

use plotters::prelude::*;

use crate::Failure;
use crate::report::Row;

/// A line with a name, points sorted by x.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    /// Its name in the legend.
    pub name: String,
    /// The points, as x and y.
    pub points: Vec<(f64, f64)>,
}

/// What a plot says.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Labels<'a> {
    /// What stands above the picture.
    pub title: &'a str,
    /// Below the x axis, with the unit.
    pub x: &'a str,
    /// Beside the y axis, with the unit.
    pub y: &'a str,
}

/// Draws lines on logarithmic axes.
pub(crate) fn lines(path: &Path, labels: Labels, lines: &[Line]) -> Result<(), Failure> {
    draw(path, labels, lines).map_err(|e| Failure::new(format!("Cannot draw {}: {e}", path.display())))
}

/// Draws a bar for each row: its median, with the middle half of the samples as a line across the end.
pub(crate) fn bars(path: &Path, title: &str, rows: &[Row]) -> Result<(), Failure> {
    draw_bars(path, title, rows).map_err(|e| Failure::new(format!("Cannot draw {}: {e}", path.display())))
}

fn draw_bars(path: &Path, title: &str, rows: &[Row]) -> Result<(), Box<dyn std::error::Error>> {
    let Some((low, high)) = bounds(rows.iter().flat_map(|r| [r.value.p25, r.value.p75])) else {
        return Err("there is nothing to draw".into());
    };
    let height = 90 + 26 * u32::try_from(rows.len())?;
    let root = SVGBackend::new(path, (1000, height)).into_drawing_area();
    root.fill(&WHITE)?;
    let count = i32::try_from(rows.len())?;
    let unit = rows.first().map_or("", |r| r.unit);
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 20))
        .margin(10)
        .x_label_area_size(40)
        .y_label_area_size(330)
        .build_cartesian_2d((low / 2.0..high).log_scale(), (0..count).into_segmented())?;
    let name = |place: &SegmentValue<i32>| match place {
        SegmentValue::CenterOf(i) | SegmentValue::Exact(i) => {
            let row = usize::try_from(count - 1 - i).ok().and_then(|i| rows.get(i));
            row.map_or(String::new(), |r| format!("{} ({})", r.what, r.way))
        }
        SegmentValue::Last => String::new(),
    };
    chart
        .configure_mesh()
        .disable_y_mesh()
        .x_desc(format!("median ({unit}), logarithmic"))
        .x_label_formatter(&|v| short(*v))
        .y_labels(rows.len())
        .y_label_formatter(&name)
        .draw()?;
    let mut names: Vec<&str> = Vec::new();
    for (i, row) in (0..count).rev().zip(rows) {
        let colour = names.iter().position(|n| *n == row.way).unwrap_or_else(|| {
            names.push(&row.way);
            names.len() - 1
        });
        let mut bar = Rectangle::new(
            [(low / 2.0, SegmentValue::Exact(i)), (row.value.p50, SegmentValue::Exact(i + 1))],
            Palette99::pick(colour).filled(),
        );
        bar.set_margin(4, 4, 0, 0);
        let middle = SegmentValue::CenterOf(i);
        let whisker = [(row.value.p25, middle.clone()), (row.value.p75, middle)];
        chart.draw_series([bar])?;
        chart.draw_series([PathElement::new(whisker, BLACK.stroke_width(2))])?;
    }
    root.present()?;
    Ok(())
}

/// The smallest and the largest, with room around; `None` without a positive value.
fn bounds(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    let positive = values.filter(|v| v.is_finite() && *v > 0.0);
    let (low, high) = positive.fold((f64::INFINITY, 0f64), |(low, high), v| (low.min(v), high.max(v)));
    (high > 0.0).then_some((low / 1.3, high * 1.3))
}

fn draw(path: &Path, labels: Labels, lines: &[Line]) -> Result<(), Box<dyn std::error::Error>> {
    let points = || lines.iter().flat_map(|l| l.points.iter());
    let (Some(x), Some(y)) = (bounds(points().map(|p| p.0)), bounds(points().map(|p| p.1))) else {
        return Err("there is nothing to draw".into());
    };
    let root = SVGBackend::new(path, (900, 560)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption(labels.title, ("sans-serif", 22))
        .margin(12)
        .x_label_area_size(46)
        .y_label_area_size(70)
        .build_cartesian_2d((x.0..x.1).log_scale(), (y.0..y.1).log_scale())?;
    chart
        .configure_mesh()
        .x_desc(labels.x)
        .y_desc(labels.y)
        .x_label_formatter(&|v| short(*v))
        .y_label_formatter(&|v| short(*v))
        .light_line_style(WHITE.mix(0.0))
        .draw()?;
    for (i, line) in lines.iter().enumerate() {
        let colour = Palette99::pick(i).to_rgba();
        chart
            .draw_series(LineSeries::new(line.points.iter().copied(), colour.stroke_width(2)).point_size(3))?
            .label(&line.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
    }
    chart
        .configure_series_labels()
        .background_style(WHITE.mix(0.85))
        .border_style(BLACK.mix(0.3))
        .position(SeriesLabelPosition::LowerRight)
        .draw()?;
    root.present()?;
    Ok(())
}

/// A number as people write it on an axis.
fn short(value: f64) -> String {
    let (scaled, suffix) = match value {
        v if v >= 1e9 => (v / 1e9, "G"),
        v if v >= 1e6 => (v / 1e6, "M"),
        v if v >= 1e3 => (v / 1e3, "k"),
        v => (v, ""),
    };
    let text = if scaled >= 10.0 { format!("{scaled:.0}") } else { format!("{scaled:.2}") };
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{suffix}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_has_its_axes() {
        let path = std::env::temp_dir().join(format!("rgpu-bench-plot-{}.svg", std::process::id()));
        let line = Line { name: "shm".into(), points: vec![(4.0, 1e6), (4096.0, 1e9)] };
        let labels = Labels { title: "Bandwidth", x: "bytes", y: "bytes/s" };
        lines(&path, labels, &[line]).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        for word in ["Bandwidth", "bytes/s", "shm"] {
            assert!(text.contains(word), "{word}");
        }
        assert!(lines(&path, labels, &[]).is_err());
        assert_eq!((short(4096.0), short(2.5e9), short(0.5)), ("4.1k".into(), "2.5G".into(), "0.5".into()));
    }
}
