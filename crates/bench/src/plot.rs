//! Plots as SVG, to stand in a page: no background, and no colours but those that the page defines.

use std::fmt::Write as _;

/// A plot over named categories.
#[derive(Clone, Debug, Default)]
pub struct Plot {
    pub title: String,
    pub x_label: String,
    pub categories: Vec<String>,
    /// What the values are, with their unit.
    pub y_label: String,
    /// Whether the axis of the values is logarithmic.
    pub logarithmic: bool,
    /// Whether the values are columns; otherwise points joined by lines.
    pub columns: bool,
    /// A value worth a line across, such as 1 for ratios.
    pub guide: Option<f64>,
    pub series: Vec<Series>,
}

/// One thing's values.
#[derive(Clone, Debug, Default)]
pub struct Series {
    pub name: String,
    /// One value for each category, where there is one.
    pub values: Vec<Option<Value>>,
}

/// A value, and between what ends half of the turns are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Value {
    pub at: f64,
    pub ends: Option<[f64; 2]>,
    /// Other programs kept the machine busy while it was measured.
    pub is_spoiled: bool,
}

impl From<f64> for Value {
    fn from(at: f64) -> Self {
        Self { at, ends: None, is_spoiled: false }
    }
}

impl From<&String> for Series {
    fn from(name: &String) -> Self {
        Self { name: name.clone(), values: Vec::new() }
    }
}

/// Where the one is that is looked for; where there is none, a new one at the end.
fn place_of<'a, T: From<&'a String>>(all: &mut Vec<T>, is_it: impl Fn(&T) -> bool, name: &'a String) -> usize {
    all.iter().position(is_it).unwrap_or_else(|| {
        all.push(name.into());
        all.len() - 1
    })
}

/// The drawing, and the part of it that the values fill.
const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 350.0;
const LEFT: f64 = 66.0;
const RIGHT: f64 = 626.0;
const TOP: f64 = 8.0;
const BOTTOM: f64 = 300.0;
/// The share of its category that a group of columns takes.
const GROUP: f64 = 0.76;
/// What each series looks like on a light and on a dark page: colours that people who see few of them
/// can tell apart too (Okabe and Ito, "Color Universal Design", 2008, adapted to each background).
const COLOURS: [(&str, &str); 8] = [
    ("#0072b2", "#56b4e9"),
    ("#d55e00", "#ff9a4d"),
    ("#008a63", "#3ddbaa"),
    ("#b0508f", "#e79bd0"),
    ("#8a6d00", "#f0d442"),
    ("#555f6b", "#b8c2cf"),
    ("#3b3bb5", "#a3a3ff"),
    ("#a11d33", "#ff8095"),
];

/// How a plot looks. Takes the variables `--ink`, `--grid`, `--guide` and those of [`colours`].
pub const STYLE: &str = "
svg text{fill:var(--ink);font-size:13px;text-anchor:middle}
svg .left{text-anchor:end}
svg .axis{stroke:var(--ink)}svg .grid{stroke:var(--grid)}svg .guide{stroke:var(--guide)}
svg polyline{fill:none;stroke-width:2}
svg .bar{stroke:var(--ink);stroke-width:1.4}
svg .spoiled{fill-opacity:.15;stroke-width:1.6;stroke-dasharray:3 2}
";

/// The variables of the series' colours, for a light or a dark page.
pub fn colours(dark: bool) -> String {
    let looks = COLOURS.iter().enumerate();
    looks
        .map(|(index, (light, night))| {
            let look = if dark { night } else { light };
            format!("--series-{index}:{look};")
        })
        .collect()
}

/// The colour of a series.
pub fn colour_of(series: usize) -> String {
    format!("var(--series-{})", series % COLOURS.len())
}

impl Plot {
    /// A line of points for each series, out of values that each have a category and a series, in the
    /// order in which these come. `axes` says what the categories are and what the values are.
    pub fn of<C: Into<String>, S: Into<String>, V: Into<Value>>(
        title: impl Into<String>,
        [x_label, y_label]: [&str; 2],
        values: impl IntoIterator<Item = (C, S, V)>,
    ) -> Self {
        let mut plot =
            Self { title: title.into(), x_label: x_label.to_owned(), y_label: y_label.to_owned(), ..Self::default() };
        for (category, name, value) in values {
            let (category, name) = (category.into(), name.into());
            let place = place_of(&mut plot.categories, |one| *one == category, &category);
            let line = place_of(&mut plot.series, |one| one.name == name, &name);
            let values = &mut plot.series[line].values;
            values.resize(values.len().max(place + 1), None);
            values[place] = Some(value.into());
        }
        plot
    }

    /// The same with columns.
    pub fn columns(mut self) -> Self {
        self.columns = true;
        self
    }

    /// The same on a logarithmic axis.
    pub fn logarithmic(mut self) -> Self {
        self.logarithmic = true;
        self
    }

    /// The same with a line across at a value.
    pub fn guide(mut self, value: f64) -> Self {
        self.guide = Some(value);
        self
    }

    /// All values there are.
    fn values(&self) -> impl Iterator<Item = Value> {
        let values = self.series.iter().flat_map(|series| &series.values);
        values.flatten().copied()
    }

    /// What its marks mean; nothing where they need no words.
    pub fn marks(&self) -> String {
        let bars = self.values().any(|value| value.ends.is_some());
        let spoiled = self.values().any(|value| value.is_spoiled);
        let bars = bars.then_some("Half of the turns lie within a bar.");
        let spoiled = spoiled.then_some("Faint, with a dashed line: other programs kept the machine busy.");
        let words: Vec<_> = bars.into_iter().chain(spoiled).collect();
        words.join(" ")
    }

    /// The drawing. A plot without values is an empty text.
    pub fn svg(&self) -> String {
        let Some(axis) = Axis::of(self) else {
            return String::new();
        };
        let mut svg = format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\">\n");
        for (value, label) in axis.ticks() {
            if let Some(y) = axis.y(value) {
                line(&mut svg, "grid", [LEFT, y, RIGHT, y]);
                text(&mut svg, "left", LEFT - 8.0, y + 4.0, &label);
            }
        }
        line(&mut svg, "axis", [LEFT, BOTTOM, RIGHT, BOTTOM]);
        line(&mut svg, "axis", [LEFT, TOP, LEFT, BOTTOM]);
        for (place, category) in self.categories.iter().enumerate() {
            text(&mut svg, "", self.x(place), BOTTOM + 18.0, category);
        }
        let middle = f64::midpoint(LEFT, RIGHT);
        text(&mut svg, "", middle, HEIGHT - 8.0, &self.x_label);
        // Turned by a quarter, "right" is up.
        svg.push_str("<g transform=\"rotate(-90)\">");
        text(&mut svg, "", -f64::midpoint(TOP, BOTTOM), 14.0, &self.y_label);
        svg.push_str("</g>\n");
        if let Some(y) = self.guide.and_then(|guide| axis.y(guide)) {
            line(&mut svg, "guide", [LEFT, y, RIGHT, y]);
        }
        for (index, series) in self.series.iter().enumerate() {
            if self.columns {
                self.draw_columns(&mut svg, &axis, index, series);
            } else {
                self.draw_points(&mut svg, &axis, index, series);
            }
        }
        svg + "</svg>"
    }

    fn draw_points(&self, svg: &mut String, axis: &Axis, index: usize, series: &Series) {
        let colour = colour_of(index);
        let (mut path, mut marks) = (String::new(), String::new());
        for (x, y, value) in self.points(axis, series) {
            path += &format!("{x:.1},{y:.1} ");
            // Lines may meet in a category: their bars stand side by side.
            let beside = 3.0 * (float(index) - float(self.series.len() - 1) / 2.0);
            bar(&mut marks, axis, x + beside, value);
            let look = look(&colour, value);
            marks += &format!("<circle {look} cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"/>\n");
        }
        *svg += &format!("<polyline style=\"stroke:{colour}\" points=\"{path}\"/>\n{marks}");
    }

    fn draw_columns(&self, svg: &mut String, axis: &Axis, index: usize, series: &Series) {
        let colour = colour_of(index);
        let group = GROUP * (RIGHT - LEFT) / float(self.categories.len());
        let each = group / float(self.series.len());
        let width = each * 0.92;
        for (x, y, value) in self.points(axis, series) {
            let left = x - group / 2.0 + float(index) * each;
            let (middle, height) = (left + width / 2.0, BOTTOM - y);
            let look = look(&colour, value);
            *svg +=
                &format!("<rect {look} x=\"{left:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"/>\n");
            let top = bar(svg, axis, middle, value).unwrap_or(y);
            text(svg, "", middle, top - 4.0, &axis_number(value.at));
        }
    }

    /// Place and value of each value that can be drawn.
    fn points(&self, axis: &Axis, series: &Series) -> Vec<(f64, f64, Value)> {
        let values = series.values.iter().enumerate();
        let drawn = values.filter_map(|(place, &value)| {
            let value = value?;
            Some((self.x(place), axis.y(value.at)?, value))
        });
        drawn.collect()
    }

    /// The middle of a category.
    fn x(&self, place: usize) -> f64 {
        LEFT + (float(place) + 0.5) * (RIGHT - LEFT) / float(self.categories.len())
    }
}

/// The axis of the values. On a logarithmic one, `low` and `high` are powers of ten.
struct Axis {
    low: f64,
    high: f64,
    logarithmic: bool,
}

impl Axis {
    fn of(plot: &Plot) -> Option<Self> {
        let mut axis = Self { low: 0.0, high: 1.0, logarithmic: plot.logarithmic };
        let points = plot.values().flat_map(|value| {
            let ends = value.ends.filter(|_| value.at.is_finite());
            std::iter::once(value.at).chain(ends.into_iter().flatten())
        });
        let heights = points.chain(plot.guide).filter_map(|value| axis.height(value));
        let heights: Vec<f64> = heights.collect();
        let high = heights.iter().copied().reduce(f64::max)?;
        if axis.logarithmic {
            axis.low = heights.iter().copied().fold(high, f64::min).floor();
            axis.high = high.ceil().max(axis.low + 1.0);
        } else if high > 0.0 {
            axis.high = high * 1.08;
        }
        Some(axis)
    }

    /// How high a value stands, where it can.
    fn height(&self, value: f64) -> Option<f64> {
        match (value.is_finite(), self.logarithmic) {
            (true, false) => Some(value),
            (true, true) if value > 0.0 => Some(value.log10()),
            _ => None,
        }
    }

    fn y(&self, value: f64) -> Option<f64> {
        let share = (self.height(value)? - self.low) / (self.high - self.low);
        Some(BOTTOM - share * (BOTTOM - TOP))
    }

    /// Values with a line across, and what stands beside it.
    fn ticks(&self) -> Vec<(f64, String)> {
        if self.logarithmic {
            // Lines at 2, 3 ... 9 times each power of ten too.
            let decades = std::iter::successors(Some(self.low), |decade| Some(decade + 1.0));
            let decades = decades.take_while(|decade| *decade <= self.high);
            let values = decades.flat_map(|decade| {
                let one = 10f64.powf(decade);
                let label = [(one, axis_number(one))];
                let between = (2..10u8).map(move |factor| (f64::from(factor) * one, String::new()));
                label.into_iter().chain(between)
            });
            let fits = |(value, _): &(f64, String)| value.log10() <= self.high + 0.01;
            return values.filter(fits).collect();
        }
        // About five, apart by 1, 2 or 5 times a power of ten.
        let apart = self.high / 5.0;
        let power = 10f64.powf(apart.log10().floor());
        let steps = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power);
        let step = steps.into_iter().find(|step| *step >= apart);
        let step = step.unwrap_or(self.high);
        let values = std::iter::successors(Some(0.0), |value| Some(value + step));
        let values = values.take_while(|value| *value <= self.high);
        values.map(|value| (value, axis_number(value))).collect()
    }
}

fn line(svg: &mut String, class: &str, [x1, y1, x2, y2]: [f64; 4]) {
    let _ = writeln!(svg, "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>");
}

/// How the mark of a value looks.
fn look(colour: &str, value: Value) -> String {
    if value.is_spoiled {
        format!("class=\"spoiled\" style=\"fill:{colour};stroke:{colour}\"")
    } else {
        format!("style=\"fill:{colour}\"")
    }
}

/// From one end of a value to the other, where they lie apart. Where its top is.
fn bar(svg: &mut String, axis: &Axis, x: f64, value: Value) -> Option<f64> {
    let [low, high] = value.ends?;
    let (bottom, top) = (axis.y(low)?, axis.y(high)?);
    if bottom - top < 1.0 {
        return None;
    }
    line(svg, "bar", [x, bottom, x, top]);
    for end in [bottom, top] {
        line(svg, "bar", [x - 3.0, end, x + 3.0, end]);
    }
    Some(top)
}

fn text(svg: &mut String, class: &str, x: f64, y: f64, text: &str) {
    let text = escape(text);
    let _ = writeln!(svg, "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{text}</text>");
}

/// Text that stands for itself in HTML and SVG, in attributes too.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;").replace('\'', "&#39;")
}

/// A count as a divisor: at least 1 where it divides.
fn float(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
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

    fn plot() -> Plot {
        let values = [
            ("4k", "inline", 10.0),
            ("64k", "inline", 200.0),
            ("4k", "queue", 1.0),
            ("64k", "queue", 20.0),
            ("<1M>", "queue", 300.0),
        ];
        Plot::of("Throughput", ["block", "MB/s"], values).guide(1.0)
    }

    #[test]
    fn every_value_is_a_point_and_every_category_has_its_name() {
        for plot in [plot(), plot().logarithmic()] {
            let svg = plot.svg();
            assert_eq!(svg.matches("<circle").count(), 5, "{svg}");
            for name in ["4k", "64k", "&lt;1M&gt;", "MB/s", "block"] {
                assert!(svg.contains(&format!(">{name}</text>")), "{name} in {svg}");
            }
        }
    }

    #[test]
    fn columns_are_drawn_for_the_values_there_are() {
        let svg = plot().columns().svg();
        assert_eq!(svg.matches("<rect style=\"fill:var(--series-0)\"").count(), 2);
        assert_eq!(svg.matches("<rect style=\"fill:var(--series-1)\"").count(), 3);
        assert!(svg.contains(">300</text>"), "{svg}");
    }

    #[test]
    fn what_is_drawn_stays_inside_and_higher_values_stand_higher() {
        for plot in [plot(), plot().logarithmic()] {
            let axis = Axis::of(&plot).expect("values");
            let values = [1.0, 10.0, 20.0, 200.0, 300.0];
            let places = values.map(|value| axis.y(value).expect("a place"));
            assert!(places.iter().all(|y| (TOP..=BOTTOM).contains(y)), "{places:?}");
            assert!(places.is_sorted_by(|a, b| a > b), "{places:?}");
            for (value, label) in axis.ticks() {
                let y = axis.y(value).expect("a place");
                assert!((TOP - 0.5..=BOTTOM + 0.5).contains(&y), "{label} at {y}");
            }
        }
    }

    #[test]
    fn the_page_chooses_the_colours() {
        let svg = plot().columns().svg();
        assert!(!svg.contains('#'), "{svg}");
        assert_eq!(colour_of(8), colour_of(0));
        assert!(colours(true).contains("--series-7:#ff8095;"));
    }

    #[test]
    fn values_have_bars_between_their_ends_and_spoiled_ones_look_spoiled() {
        let value = |at, is_spoiled| Value { at, ends: Some([at * 0.5, at * 1.5]), is_spoiled };
        let values = [("4k", "inline", value(10.0, false)), ("64k", "inline", value(20.0, true))];
        let plot = Plot::of("Throughput", ["block", "MB/s"], values);
        for plot in [plot.clone(), plot.columns()] {
            let svg = plot.svg();
            assert_eq!(svg.matches("class=\"bar\"").count(), 2 * 3, "{svg}");
            assert_eq!(svg.matches("class=\"spoiled\"").count(), 1, "{svg}");
            assert!(plot.marks().contains("busy"));
            let axis = Axis::of(&plot).expect("values");
            assert!(axis.y(30.0).is_some_and(|y| y >= TOP), "a bar is cut");
        }
        assert_eq!(self::plot().marks(), "");
    }

    #[test]
    fn nothing_to_draw_is_no_drawing() {
        assert_eq!(Plot::default().svg(), "");
        let mut empty = plot().logarithmic();
        empty.guide = None;
        for series in &mut empty.series {
            series.values = vec![None, Some(f64::NAN.into()), Some(0.0.into())];
        }
        assert_eq!(empty.svg(), "");
    }

    #[test]
    fn numbers_on_axes_are_short() {
        for (value, text) in [(0.97, "0.97"), (1.0, "1"), (12.5, "12.5"), (1234.0, "1234"), (0.0, "0")] {
            assert_eq!(axis_number(value), text);
        }
    }
}
