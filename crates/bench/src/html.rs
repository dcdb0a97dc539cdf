//! The report as one page: no script, nothing from elsewhere, light or dark as the reader has it.

use crate::plot::{self, Plot, escape};
use crate::report::{Figure, Report};
use crate::table::Table;
use crate::text::conditions;

const STYLE: &str = "
:root{color-scheme:light dark;--page:#fbfbf9;--card:#fff;--line:#e2e2dc;--ink:#1d2126;--soft:#5c6570;
--grid:#e6e6e0;--guide:#8a939e;--good:#0b6e4f;--bad:#b3261e;LIGHT}
@media (prefers-color-scheme:dark){:root{--page:#14171a;--card:#1c2024;--line:#31373d;--ink:#e8eaec;--soft:#9aa4af;
--grid:#2c3238;--guide:#77818c;--good:#4fd1a1;--bad:#ff8a80;DARK}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
main{max-width:1080px;margin:0 auto;padding:32px 20px 64px}
h1{font-size:26px;line-height:1.2;margin:0 0 4px}
h2{font-size:17px;margin:36px 0 10px}
p{margin:6px 0;max-width:78ch}
.soft{color:var(--soft)}
.warning{border-left:4px solid var(--bad);background:var(--card);padding:8px 14px;margin:14px 0;max-width:none}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(230px,1fr));gap:12px}
.figure{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:12px 14px}
.figure b{display:block;font-size:26px;font-weight:600;line-height:1.25;font-variant-numeric:tabular-nums}
.figure code{font-size:12.5px;overflow-wrap:anywhere}
.figure p{font-size:13px;line-height:1.4}
.met{color:var(--good)}.missed{color:var(--bad)}
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,480px),1fr));gap:14px}
figure{margin:0;background:var(--card);border:1px solid var(--line);border-radius:8px;padding:12px 12px 4px}
figure p{font-size:12.5px;padding:0 4px}
figcaption{font-weight:600;font-size:14px;padding:0 4px}
.legend{display:flex;flex-wrap:wrap;gap:2px 16px;padding:2px 4px 4px;font-size:13px;color:var(--soft)}
.legend i{display:inline-block;width:11px;height:11px;border-radius:3px;margin-right:6px}
svg{display:block;width:100%;height:auto}
.scroll{overflow-x:auto;background:var(--card);border:1px solid var(--line);border-radius:8px}
table{border-collapse:collapse;width:100%;font-size:13.5px;font-variant-numeric:tabular-nums}
th,td{padding:5px 12px;text-align:left;border-bottom:1px solid var(--line);white-space:nowrap}
tr:last-child td{border-bottom:0}
th{font-weight:600;color:var(--soft)}
.number{text-align:right}
dl{display:grid;grid-template-columns:max-content 1fr;gap:3px 18px;margin:0}
dt{color:var(--soft)}dd{margin:0;overflow-wrap:anywhere}
pre{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:10px 14px;overflow-x:auto;font-size:13px;margin:8px 0}
";

/// The whole page, with what the figures should be or without.
pub fn page(report: &Report, goals: bool) -> String {
    let style = STYLE.replace("LIGHT", &plot::colours(false)).replace("DARK", &plot::colours(true)) + plot::STYLE;
    let title = escape(report.title);
    let warning = |text: &String| element("p class=\"warning\"", escape(text));
    let note = |text: &String| element("p", escape(text));
    let command = |text: &String| element("pre", escape(text));
    let condition = |(name, value): (&str, String)| element("dt", name) + &element("dd", escape(&value));
    let version = format!("Measured by cryptline {}.", report.machine.cryptline);
    let body = [
        element("h1", &title),
        element("p class=\"soft\"", escape(&report.medium)),
        each(&report.warnings, warning),
        element("h2", "Figures"),
        element("div class=\"figures\"", each(&report.figures, |it| figure(it, goals))),
        each(report.footnote(), |it| element("p class=\"soft\"", it)),
        plots(&report.plots),
        each(&report.tables, table),
        element("h2", "How it was measured"),
        each(&report.notes, note),
        element("h2", "Machine"),
        element("dl", each(conditions(report), condition)),
        element("h2", "Commands"),
        each(&report.commands, command),
        element("p class=\"soft\"", escape(&version)),
    ];
    let head = "<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
        .to_owned()
        + &element("title", title)
        + &element("style", style);
    let main = element("main", body.concat());
    let html = element("head", head) + &element("body", main);
    "<!DOCTYPE html>\n".to_owned() + &element("html lang=\"en\"", html)
}

/// An element with its attributes around what is HTML already.
fn element(tag: &str, inner: impl AsRef<str>) -> String {
    let name = tag.split(' ').next().unwrap_or(tag);
    format!("<{tag}>{}</{name}>\n", inner.as_ref())
}

fn each<T>(items: impl IntoIterator<Item = T>, show: impl FnMut(T) -> String) -> String {
    items.into_iter().map(show).collect()
}

fn figure(figure: &Figure, goals: bool) -> String {
    let verdict = figure.verdict();
    let goal = match figure.goal {
        Some(_) if goals => format!("<span class=\"{verdict}\">{verdict}</span>: {}", figure.goal_text()),
        _ => String::new(),
    };
    let note = escape(figure.note.as_deref().unwrap_or_default());
    let parts =
        [element("code", figure.label()), element("b", figure.value_text()), goal, element("p class=\"soft\"", note)];
    element("div class=\"figure\"", parts.concat())
}

fn plots(plots: &[Plot]) -> String {
    let drawn = plots.iter().map(|plot| (plot, plot.svg()));
    let drawn: Vec<_> = drawn.filter(|(_, svg)| !svg.is_empty()).collect();
    if drawn.is_empty() {
        return String::new();
    }
    let figures = each(drawn, |(plot, svg)| {
        let title = escape(&plot.title);
        let named = format!("<svg role=\"img\" aria-label=\"{title}\" ");
        let legend = each(plot.series.iter().enumerate(), |(index, series)| {
            let colour = plot::colour_of(index);
            let mark = format!("<i style=\"background:{colour}\"></i>{}", escape(&series.name));
            element("span", mark)
        });
        let parts = [
            element("figcaption", title),
            element("div class=\"legend\"", legend),
            svg.replacen("<svg ", &named, 1),
            element("p class=\"soft\"", plot.marks()),
        ];
        element("figure", parts.concat())
    });
    element("h2", "Plots") + &element("div class=\"plots\"", figures)
}

fn table(table: &Table) -> String {
    let numbers = table.numbers();
    let row = |tag: &str, cells: &[String]| {
        let cells = each(cells.iter().zip(&numbers), |(cell, number)| {
            let class = if *number { " class=\"number\"" } else { "" };
            element(&format!("{tag}{class}"), escape(cell))
        });
        element("tr", cells)
    };
    let head = element("thead", row("th", &table.columns));
    let body = element("tbody", each(&table.rows, |cells| row("td", cells)));
    let whole = element("table", head + &body);
    element("h2", escape(&table.title)) + &element("div class=\"scroll\"", whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_users_give_is_text_and_no_markup() {
        let mut report = Report::new("sweep", "<b>title</b>");
        report.medium = "\"><script>alert(1)</script>".into();
        report.commands = vec!["cryptline bench sweep --medium '<img>'".into()];
        let page = page(&report, true);
        for markup in ["<b>", "<script", "<img"] {
            assert!(!page.contains(markup), "{markup}");
        }
        assert!(page.contains("&lt;img&gt;"));
    }

    #[test]
    fn goals_are_for_those_who_ask_for_them() {
        let mut report = Report::new("inline", "a title");
        report.figures = vec![Figure::new("x", 0.5).at_least(0.97)];
        assert!(!page(&report, false).contains("0.97"));
        assert!(page(&report, true).contains(">missed</span>: at least 0.97"));
    }

    #[test]
    fn the_page_needs_nothing_from_elsewhere() {
        let page = page(&Report::new("inline", "a title"), true);
        let outside = ["http://", "https://", "src=", "@import", "url("];
        for word in outside {
            assert!(!page.contains(word), "{word}");
        }
    }
}
