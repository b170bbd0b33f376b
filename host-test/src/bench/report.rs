//! The tables: medians over the rounds, as ratios to a base in the same round.

use std::fmt;

use super::variant::Variant;
use super::wrk::Figures;

/// All that was measured.
#[derive(Debug, Default)]
pub(super) struct Report(Vec<Row>);

#[derive(Debug)]
struct Row {
    round: u32,
    connections: u32,
    name: &'static str,
    base: &'static str,
    figures: Figures,
}

impl Report {
    pub(super) fn add(
        &mut self,
        round: u32,
        connections: u32,
        variant: &Variant,
        figures: Figures,
    ) {
        self.0.push(Row {
            round,
            connections,
            name: variant.name,
            base: variant.base,
            figures,
        });
    }

    /// The median over the rounds of a figure's ratio to the base's.
    fn ratio(&self, row: &Row, figure: impl Fn(&Figures) -> f64) -> f64 {
        let of = |round: u32, name: &str| {
            self.0
                .iter()
                .find(|other| {
                    other.round == round
                        && other.connections == row.connections
                        && other.name == name
                })
                .map(|other| figure(&other.figures))
        };
        let rounds = self
            .0
            .iter()
            .filter(|other| other.name == row.name && other.connections == row.connections);
        median(rounds.filter_map(|other| Some(figure(&other.figures) / of(other.round, row.base)?)))
    }

    fn middle(&self, row: &Row, figure: impl Fn(&Figures) -> f64) -> f64 {
        let rounds = self
            .0
            .iter()
            .filter(|other| other.name == row.name && other.connections == row.connections);
        median(rounds.map(|other| figure(&other.figures)))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "| | connections | requests/s over bare | p50 over bare | p99 over bare | Envoy CPU a request |"
        )?;
        writeln!(f, "|---|---|---|---|---|---|")?;
        for row in self.0.iter().filter(|row| row.round == 1) {
            writeln!(
                f,
                "| {} | {} | {:.2} | {:.2} | {:.2} | {:.0} us |",
                row.name,
                row.connections,
                self.ratio(row, |figures| figures.requests_per_s),
                self.ratio(row, |figures| figures.p50_us),
                self.ratio(row, |figures| figures.p99_us),
                self.middle(row, |figures| figures.envoy_cpu_us),
            )?;
        }
        writeln!(f)?;
        write!(f, "Absolute, for orientation only (requests/s, p50):")?;
        for row in self.0.iter().filter(|row| row.round == 1) {
            write!(
                f,
                " {} at {}: {:.0}, {:.0} us;",
                row.name,
                row.connections,
                self.middle(row, |figures| figures.requests_per_s),
                self.middle(row, |figures| figures.p50_us),
            )?;
        }
        Ok(())
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
