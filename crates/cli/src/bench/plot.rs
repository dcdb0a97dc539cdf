//! Plots as SVG, to stand in a page: no background, and colours that the page chooses.
//!
//! The drawing is made with stand-in colours, one for each role; the style sheet of the page says
//! what each looks like in a light and in a dark room (see [`style`]).

use std::error::Error;

use plotters::chart::{ChartBuilder, ChartContext};
use plotters::coord::Shift;
use plotters::coord::cartesian::Cartesian2d;
use plotters::coord::types::RangedCoordf64;
use plotters::drawing::{DrawingArea, IntoDrawingArea};
use plotters::element::{Circle, PathElement, Rectangle};
use plotters::prelude::SVGBackend;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, IntoFont, RGBColor};

/// A plot over named categories.
#[derive(Clone, Debug, Default)]
pub struct Plot {
    /// What it shows.
    pub title: String,
    /// What the categories are.
    pub x_label: String,
    /// The categories, from left to right.
    pub categories: Vec<String>,
    /// What the values are, with their unit.
    pub y_label: String,
    /// Whether the values stand on a logarithmic axis.
    pub logarithmic: bool,
    /// Whether the values are columns; otherwise points joined by lines.
    pub columns: bool,
    /// A value worth a line across, such as 1 for ratios.
    pub guide: Option<f64>,
    /// What is compared.
    pub series: Vec<Series>,
}

/// One thing's values.
#[derive(Clone, Debug, Default)]
pub struct Series {
    /// What it is.
    pub name: String,
    /// One value for each category, where there is one.
    pub values: Vec<Option<f64>>,
}

/// Pixels of a plot.
const SIZE: (u32, u32) = (640, 350);
/// Stand-in colours: text, faint lines, the guide, and one for each series.
const INK: RGBColor = RGBColor(1, 1, 1);
const GRID: RGBColor = RGBColor(1, 1, 2);
const GUIDE: RGBColor = RGBColor(1, 1, 3);
const SERIES: [RGBColor; 8] = [
    RGBColor(1, 2, 1),
    RGBColor(1, 2, 2),
    RGBColor(1, 2, 3),
    RGBColor(1, 2, 4),
    RGBColor(1, 2, 5),
    RGBColor(1, 2, 6),
    RGBColor(1, 2, 7),
    RGBColor(1, 2, 8),
];
/// What each series looks like in a light and in a dark room: told apart by people who see few
/// colours too (Okabe and Ito, "Color Universal Design", 2008, with the contrast of each room).
const SERIES_LOOK: [(&str, &str); 8] = [
    ("#0072b2", "#56b4e9"),
    ("#d55e00", "#ff9a4d"),
    ("#008a63", "#3ddbaa"),
    ("#b0508f", "#e79bd0"),
    ("#8a6d00", "#f0d442"),
    ("#555f6b", "#b8c2cf"),
    ("#3b3bb5", "#a3a3ff"),
    ("#a11d33", "#ff8095"),
];
/// The share of its place that a group of columns takes.
const GROUP: f64 = 0.76;

type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// Rules that give the stand-in colours their look. Variables: `--ink`, `--grid`, `--guide`.
#[must_use]
pub fn style() -> String {
    let rule = |stand_in: RGBColor, look: &str| {
        let name = attribute(stand_in);
        format!(
            "svg [fill=\"{name}\"]{{fill:var({look})}}svg [stroke=\"{name}\"]{{stroke:var({look})}}\n"
        )
    };
    let mut css = rule(INK, "--ink") + &rule(GRID, "--grid") + &rule(GUIDE, "--guide");
    for (index, stand_in) in SERIES.into_iter().enumerate() {
        css += &rule(stand_in, &format!("--series-{index}"));
    }
    css
}

/// The variables of the series' colours, for a light or a dark room.
#[must_use]
pub fn colours(dark: bool) -> String {
    let looks = SERIES_LOOK.iter().enumerate();
    looks
        .map(|(index, (light, night))| {
            let look = if dark { night } else { light };
            format!("--series-{index}:{look};")
        })
        .collect()
}

/// The variable with the colour of a series.
#[must_use]
pub fn colour_of(series: usize) -> String {
    format!("var(--series-{})", series % SERIES.len())
}

impl Plot {
    /// A line of points for each of `series`, with a value for each of `categories`. `axes` says what
    /// the categories are and what the values are.
    #[must_use]
    pub fn of<C, S>(
        title: impl Into<String>,
        axes: [&str; 2],
        categories: impl IntoIterator<Item = (String, C)>,
        series: impl IntoIterator<Item = (String, S)>,
        value: impl Fn(&S, &C) -> Option<f64>,
    ) -> Self {
        let categories: Vec<(String, C)> = categories.into_iter().collect();
        let of_series = |(name, series): (String, S)| Series {
            name,
            values: categories
                .iter()
                .map(|(_, category)| value(&series, category))
                .collect(),
        };
        Self {
            title: title.into(),
            x_label: axes[0].to_owned(),
            y_label: axes[1].to_owned(),
            series: series.into_iter().map(of_series).collect(),
            categories: categories.into_iter().map(|(name, _)| name).collect(),
            ..Self::default()
        }
    }

    /// The same with columns.
    #[must_use]
    pub fn columns(mut self) -> Self {
        self.columns = true;
        self
    }

    /// The same on a logarithmic axis.
    #[must_use]
    pub fn logarithmic(mut self) -> Self {
        self.logarithmic = true;
        self
    }

    /// The same with a line across at a value.
    #[must_use]
    pub fn guide(mut self, value: f64) -> Self {
        self.guide = Some(value);
        self
    }

    /// The drawing. A plot that cannot be drawn, having no values, is an empty text.
    #[must_use]
    pub fn svg(&self) -> String {
        let mut svg = String::new();
        let drawn = self.draw(&mut svg);
        match drawn {
            Ok(true) => svg,
            Ok(false) | Err(_) => String::new(),
        }
    }

    fn draw(&self, svg: &mut String) -> Result<bool, Box<dyn Error>> {
        let Some((low, high)) = self.range() else {
            return Ok(false);
        };
        let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
        let width = self.categories.len().max(1);
        let right = f64::from(u32::try_from(width)?) - 0.5;
        let mut chart = ChartBuilder::on(&area)
            .margin(6)
            .margin_right(14)
            .x_label_area_size(50)
            .y_label_area_size(70)
            .build_cartesian_2d(-0.5..right, low..high)?;
        self.axes(&mut chart, low, high)?;
        if let Some(guide) = self.guide {
            let height = self.height(guide);
            chart.draw_series([PathElement::new(
                vec![(-0.5, height), (right, height)],
                GUIDE.stroke_width(1),
            )])?;
        }
        for (index, series) in self.series.iter().enumerate() {
            if self.columns {
                self.draw_columns(&mut chart, index, series, low)?
            } else {
                self.draw_line(&mut chart, index, series)?
            }
        }
        drop(chart);
        present(&area)?;
        drop(area);
        Ok(true)
    }

    /// The lowest and the highest point of the axis.
    fn range(&self) -> Option<(f64, f64)> {
        let values = self.series.iter().flat_map(|series| &series.values);
        let values = values.flatten().copied().chain(self.guide);
        let heights: Vec<f64> = values
            .filter(|value| value.is_finite() && (!self.logarithmic || *value > 0.0))
            .map(|value| self.height(value))
            .collect();
        let (low, high) = heights
            .iter()
            .fold((f64::MAX, f64::MIN), |(low, high), &height| {
                (low.min(height), high.max(height))
            });
        match (heights.is_empty(), self.logarithmic) {
            (true, _) => None,
            (false, true) => Some((low.floor(), high.ceil().max(low.floor() + 1.0))),
            (false, false) => Some((0.0, if high > 0.0 { high * 1.08 } else { 1.0 })),
        }
    }

    /// Where a value stands on the axis.
    fn height(&self, value: f64) -> f64 {
        if self.logarithmic {
            value.max(f64::MIN_POSITIVE).log10()
        } else {
            value
        }
    }

    fn axes(&self, chart: &mut Chart<'_, '_>, low: f64, high: f64) -> Result<(), Box<dyn Error>> {
        let small = ("sans-serif", 16).into_font().color(&INK);
        let right = f64::from(u32::try_from(self.categories.len())?) - 0.5;
        if self.logarithmic {
            // Lines at 2, 3 ... 9 times each power of ten.
            let mut decade = low;
            while decade < high {
                for step in 2..10u8 {
                    let height = decade + f64::from(step).log10();
                    chart.draw_series([PathElement::new(
                        vec![(-0.5, height), (right, height)],
                        GRID.stroke_width(1),
                    )])?;
                }
                decade += 1.0;
            }
        }
        let decades = (low..high).end - low;
        let labels = if self.logarithmic {
            (0..64).take_while(|&n| f64::from(n) <= decades).count()
        } else {
            6
        };
        let category = |at: &f64| {
            let nearest = at.round();
            // The axis asks for whole numbers only, but may ask for those beside the plot.
            let index = (0..self.categories.len()).find(|&index| {
                (f64::from(u32::try_from(index).unwrap_or(0)) - nearest).abs() < 0.01
            });
            let on_it = (at - nearest).abs() < 0.01;
            index
                .filter(|_| on_it)
                .map_or_else(String::new, |index| self.categories[index].clone())
        };
        chart
            .configure_mesh()
            .disable_x_mesh()
            .x_labels(self.categories.len() * 2 + 1)
            .y_labels(labels)
            .x_label_formatter(&category)
            .y_label_formatter(&|&height| {
                if self.logarithmic {
                    axis_number(10f64.powf(height))
                } else {
                    axis_number(height)
                }
            })
            .bold_line_style(GRID.stroke_width(1))
            .light_line_style(GRID.mix(0.0))
            .axis_style(INK.stroke_width(1))
            .label_style(small.clone())
            .axis_desc_style(small)
            .x_desc(&self.x_label)
            .y_desc(&self.y_label)
            .draw()?;
        Ok(())
    }

    fn draw_line(
        &self,
        chart: &mut Chart<'_, '_>,
        index: usize,
        series: &Series,
    ) -> Result<(), Box<dyn Error>> {
        let colour = SERIES[index % SERIES.len()];
        let points: Vec<(f64, f64)> = self.points(series).collect();
        chart.draw_series([PathElement::new(points.clone(), colour.stroke_width(2))])?;
        chart.draw_series(
            points
                .into_iter()
                .map(|point| Circle::new(point, 4, colour.filled())),
        )?;
        Ok(())
    }

    fn draw_columns(
        &self,
        chart: &mut Chart<'_, '_>,
        index: usize,
        series: &Series,
        low: f64,
    ) -> Result<(), Box<dyn Error>> {
        let colour = SERIES[index % SERIES.len()];
        let width = GROUP / f64::from(u32::try_from(self.series.len().max(1))?);
        let left = f64::from(u32::try_from(index)?) * width - GROUP / 2.0;
        for (at, height) in self.points(series) {
            let corners = [(at + left, low), (at + left + width * 0.92, height)];
            chart.draw_series([Rectangle::new(corners, colour.filled())])?;
            let style = ("sans-serif", 15)
                .into_font()
                .color(&INK)
                .pos(Pos::new(HPos::Center, VPos::Bottom));
            let value = if self.logarithmic {
                10f64.powf(height)
            } else {
                height
            };
            chart.draw_series([plotters::element::Text::new(
                axis_number(value),
                (at + left + width * 0.46, height),
                style,
            )])?;
        }
        Ok(())
    }

    /// Place and height of each value there is.
    fn points<'a>(&'a self, series: &'a Series) -> impl Iterator<Item = (f64, f64)> + 'a {
        let values = series.values.iter().enumerate();
        values.filter_map(|(index, value)| {
            let value =
                value.filter(|value| value.is_finite() && (!self.logarithmic || *value > 0.0))?;
            let at = f64::from(u32::try_from(index).ok()?);
            Some((at, self.height(value)))
        })
    }
}

fn present(area: &DrawingArea<SVGBackend<'_>, Shift>) -> Result<(), Box<dyn Error>> {
    Ok(area.present()?)
}

/// The attribute that the SVG writer makes of a colour.
fn attribute(RGBColor(red, green, blue): RGBColor) -> String {
    format!("#{red:02X}{green:02X}{blue:02X}")
}

/// Few digits, as many as are needed.
fn axis_number(value: f64) -> String {
    let text = match value.abs() {
        0.0..0.095 => format!("{value:.3}"),
        0.095..10.0 => format!("{value:.2}"),
        10.0..100.0 => format!("{value:.1}"),
        _ => return format!("{value:.0}"),
    };
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(logarithmic: bool, columns: bool) -> Plot {
        Plot {
            title: "Throughput".into(),
            x_label: "block".into(),
            categories: vec!["4k".into(), "64k".into(), "1M".into()],
            y_label: "MB/s".into(),
            logarithmic,
            columns,
            guide: Some(1.0),
            series: vec![
                Series {
                    name: "inline".into(),
                    values: vec![Some(10.0), Some(200.0), None],
                },
                Series {
                    name: "queue".into(),
                    values: vec![Some(1.0), Some(20.0), Some(300.0)],
                },
            ],
        }
    }

    #[test]
    fn every_value_is_a_point_and_every_category_has_its_name() {
        for logarithmic in [false, true] {
            let svg = plot(logarithmic, false).svg();
            assert_eq!(svg.matches("<circle").count(), 5, "{svg}");
            for name in ["4k", "64k", "1M", "MB/s"] {
                assert!(svg.contains(&format!("\n{name}\n")), "{name} in {svg}");
            }
        }
    }

    #[test]
    fn columns_are_drawn_for_the_values_there_are() {
        let svg = plot(false, true).svg();
        let attribute = format!("fill=\"{}\"", attribute(SERIES[0]));
        assert_eq!(svg.matches(&attribute).count(), 2, "{svg}");
    }

    #[test]
    fn only_stand_in_colours_are_used() {
        let svg = plot(true, true).svg();
        for part in svg.split("=\"#").skip(1) {
            let colour = &part[..6];
            assert!(style().contains(colour), "#{colour} has no look");
        }
    }

    #[test]
    fn nothing_to_draw_is_no_drawing() {
        assert_eq!(Plot::default().svg(), "");
        let mut empty = plot(true, false);
        empty.guide = None;
        for series in &mut empty.series {
            series.values = vec![None, Some(f64::NAN), Some(0.0)];
        }
        assert_eq!(empty.svg(), "");
    }

    #[test]
    fn numbers_on_axes_are_short() {
        for (value, text) in [
            (0.97, "0.97"),
            (1.0, "1"),
            (12.5, "12.5"),
            (1234.0, "1234"),
            (0.0, "0"),
        ] {
            assert_eq!(axis_number(value), text);
        }
    }
}
