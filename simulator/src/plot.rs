//! Draws results as SVG.

use std::path::Path;

#[cfg(feature = "plot")]
use plotters::prelude::*;

use crate::error::{Error, Result};

/// A named curve.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// What the legend says.
    pub name: String,
    /// Its points, in the order of x.
    pub points: Vec<(f64, f64)>,
}

/// What a plot says and shows.
#[derive(Clone, Debug, PartialEq)]
pub struct Plot {
    /// Above the plot.
    pub title: String,
    /// Below the horizontal axis.
    pub x: String,
    /// Beside the vertical axis.
    pub y: String,
    /// Whether a curve keeps its value up to its next point.
    pub steps: bool,
    /// Whether the horizontal axis is logarithmic.
    pub log_x: bool,
    /// The curves, in the order of the legend and of the colours.
    pub series: Vec<Series>,
}

/// More points than this on a curve can't be seen.
#[cfg(feature = "plot")]
const POINTS: usize = 2000;

/// Colours that also the colour-blind can tell apart (Okabe and Ito's).
#[cfg(feature = "plot")]
const COLORS: [(u8, u8, u8); 7] =
    [(0, 114, 178), (213, 94, 0), (0, 158, 115), (204, 121, 167), (230, 159, 0), (86, 180, 233), (0, 0, 0)];

#[cfg(feature = "plot")]
impl Series {
    /// The curve with at most about [`POINTS`] points, its extremes kept.
    fn thinned(&self) -> Vec<(f64, f64)> {
        if self.points.len() <= POINTS {
            return self.points.clone();
        }
        let chunk = self.points.len().div_ceil(POINTS / 4);
        let mut thin = Vec::with_capacity(POINTS + 4);
        for part in self.points.chunks(chunk) {
            let by_y = |i: &usize, j: &usize| part[*i].1.total_cmp(&part[*j].1);
            let low = (0..part.len()).min_by(by_y).unwrap_or(0);
            let high = (0..part.len()).max_by(by_y).unwrap_or(0);
            let mut keep = [0, low, high, part.len() - 1];
            keep.sort_unstable();
            thin.extend(keep.into_iter().map(|i| part[i]));
        }
        thin.dedup();
        thin
    }

    fn line(&self, steps: bool) -> Vec<(f64, f64)> {
        let points = self.thinned();
        if !steps {
            return points;
        }
        let mut line = Vec::with_capacity(points.len() * 2);
        for (i, &(x, y)) in points.iter().enumerate() {
            if i > 0 {
                line.push((x, points[i - 1].1));
            }
            line.push((x, y));
        }
        line
    }
}

impl Plot {
    /// The plot as SVG text.
    pub fn svg(&self) -> std::result::Result<String, String> {
        let mut text = String::new();
        self.draw(&mut text).map_err(|error| error.to_string())?;
        Ok(text)
    }

    /// Writes the plot to a file.
    pub fn write(&self, path: &Path) -> Result<()> {
        let text = self.svg().map_err(|what| Error::Plot { path: path.to_owned(), what })?;
        std::fs::write(path, text).map_err(|source| Error::Write { path: path.to_owned(), source })
    }

    #[cfg(not(feature = "plot"))]
    fn draw(&self, _: &mut String) -> std::result::Result<(), Box<dyn std::error::Error + '_>> {
        Err("plots are left out of this build: they come with the Cargo feature `plot`".into())
    }

    #[cfg(feature = "plot")]
    fn draw(&self, text: &mut String) -> std::result::Result<(), Box<dyn std::error::Error + '_>> {
        let transform = |(x, y): (f64, f64)| (if self.log_x { libm::log10(x.max(1e-9)) } else { x }, y);
        let lines: Vec<(&str, Vec<(f64, f64)>)> = self
            .series
            .iter()
            .map(|series| {
                let line = series.line(self.steps).into_iter().map(transform);
                (series.name.as_str(), line.filter(|(x, y)| x.is_finite() && y.is_finite()).collect())
            })
            .collect();
        let all = || lines.iter().flat_map(|(_, line)| line.iter().copied());
        let (x0, x1) = bounds(all().map(|(x, _)| x), !self.log_x);
        let (y0, y1) = bounds(all().map(|(_, y)| y), true);
        let root = SVGBackend::with_string(text, (900, 420)).into_drawing_area();
        root.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&root)
            .caption(&self.title, ("sans-serif", 18))
            .margin(12)
            .x_label_area_size(42)
            .y_label_area_size(64)
            .build_cartesian_2d(x0..x1, y0..y1)?;
        let log = self.log_x;
        chart
            .configure_mesh()
            .x_desc(self.x.as_str())
            .y_desc(self.y.as_str())
            .x_label_formatter(&|x| if log { short(libm::pow(10.0, *x)) } else { short(*x) })
            .y_label_formatter(&|y| short(*y))
            .light_line_style(WHITE)
            .draw()?;
        for (i, (name, line)) in lines.iter().enumerate() {
            let (r, g, b) = COLORS[i % COLORS.len()];
            let color = RGBColor(r, g, b);
            chart
                .draw_series(LineSeries::new(line.iter().copied(), color.stroke_width(2)))?
                .label(*name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], color.stroke_width(2)));
        }
        if !lines.is_empty() {
            chart
                .configure_series_labels()
                // Distributions end at the top right, other curves at the bottom.
                .position(if log { SeriesLabelPosition::UpperLeft } else { SeriesLabelPosition::UpperRight })
                .background_style(WHITE.mix(0.8))
                .border_style(BLACK.mix(0.3))
                .draw()?;
        }
        root.present()?;
        Ok(())
    }
}

#[cfg(feature = "plot")]
fn bounds(values: impl Iterator<Item = f64>, from_zero: bool) -> (f64, f64) {
    let (mut low, mut high) = if from_zero { (0.0, 0.0) } else { (f64::MAX, f64::MIN) };
    for value in values {
        low = low.min(value);
        high = high.max(value);
    }
    if high - low > 1e-9 { (low, high + (high - low) * 0.04) } else { (low.min(0.0), low.max(0.0) + 1.0) }
}

#[cfg(feature = "plot")]
fn short(value: f64) -> String {
    let text = if value.abs() >= 1000.0 || value == value.round() {
        format!("{value:.0}")
    } else if value.abs() >= 1.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.3}")
    };
    if text == "-0" { "0".into() } else { text }
}

/// The cumulative distribution of `values`, in percent.
pub fn cdf(name: impl Into<String>, mut values: Vec<f64>) -> Series {
    values.sort_by(f64::total_cmp);
    let count = values.len() as f64;
    let points =
        values.into_iter().enumerate().map(|(i, value)| (value, (i + 1) as f64 / count * 100.0)).collect();
    Series { name: name.into(), points }
}

/// `values` from the greatest to the least, against their rank.
pub fn worst_to_best(name: impl Into<String>, mut values: Vec<f64>) -> Series {
    values.sort_by(|a, b| b.total_cmp(a));
    let points = values.into_iter().enumerate().map(|(i, value)| ((i + 1) as f64, value)).collect();
    Series { name: name.into(), points }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "plot")]
    fn plot(points: Vec<(f64, f64)>) -> Plot {
        let series = vec![Series { name: "one <&> two".into(), points }];
        Plot { title: "T".into(), x: "x".into(), y: "y".into(), steps: true, log_x: false, series }
    }

    #[cfg(feature = "plot")]
    #[test]
    fn draws_even_little() {
        for points in [vec![], vec![(1.0, 1.0)], vec![(0.0, 0.0), (2.0, f64::NAN), (3.0, 4.0)]] {
            let svg = plot(points).svg().unwrap();
            assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{svg}");
            assert!(svg.contains("one &lt;&amp;&gt; two"));
        }
    }

    #[cfg(feature = "plot")]
    #[test]
    fn thins_but_keeps_peaks() {
        let mut points: Vec<(f64, f64)> = (0..100_000).map(|i| (f64::from(i), 1.0)).collect();
        points[12_345].1 = 7.0;
        let thin = plot(points).series[0].thinned();
        assert!(thin.len() <= POINTS + 4);
        assert!(thin.contains(&(12_345.0, 7.0)));
        assert!(thin.windows(2).all(|pair| pair[0].0 <= pair[1].0));
    }

    #[test]
    fn distributions() {
        assert_eq!(cdf("c", vec![3.0, 1.0]).points, [(1.0, 50.0), (3.0, 100.0)]);
        assert_eq!(worst_to_best("w", vec![1.0, 3.0]).points, [(1.0, 3.0), (2.0, 1.0)]);
    }
}
