//! Runs stages one after the other and tells what each took. A failed stage does not stop the next: a run
//! shows everything that is wrong.

use std::time::Instant;

use anyhow::{Result, bail};

use crate::process::cpu_seconds;

pub struct Stages {
    only: Vec<String>,
    began: Instant,
    rows: Vec<Row>,
}

struct Row {
    name: &'static str,
    wall: f64,
    cpu: f64,
    passed: bool,
    /// What it says of itself.
    figures: Vec<String>,
}

impl Stages {
    pub fn new(only: &[String]) -> Self {
        Self { only: only.to_vec(), began: Instant::now(), rows: Vec::new() }
    }

    /// Whether `--only` leaves stages of this name in.
    pub fn wants(&self, name: &str) -> bool {
        self.only.is_empty()
            || self.only.iter().any(|only| name.contains(only.as_str()) || only.starts_with(name))
    }

    /// What the stage answered; nothing when it failed or was left out.
    pub fn run<T>(&mut self, name: &'static str, work: impl FnOnce() -> Result<T>) -> Option<T> {
        if !self.wants(name) {
            return None;
        }
        println!("\n==> {name} (after {:.0} s)", self.began.elapsed().as_secs_f64());
        let (began, cpu) = (Instant::now(), cpu_seconds());
        let answer = work();
        let (wall, cpu) = (began.elapsed().as_secs_f64(), cpu_seconds() - cpu);
        self.rows.push(Row { name, wall, cpu, passed: answer.is_ok(), figures: vec![] });
        answer.inspect_err(|error| println!("FAILED {name}: {error:#}")).ok()
    }

    /// A figure of the last stage, for the table.
    pub fn figure(&mut self, text: impl Into<String>) {
        if let Some(row) = self.rows.last_mut() {
            row.figures.push(text.into());
        }
    }

    /// Prints the table; an error if any stage failed, or none ran.
    pub fn close(self) -> Result<()> {
        println!("\n{}", self.table());
        let failed: Vec<&str> = self.rows.iter().filter(|row| !row.passed).map(|row| row.name).collect();
        println!("{} passed, {} failed", self.rows.len() - failed.len(), failed.len());
        match (self.rows.is_empty(), failed.is_empty()) {
            (true, _) => bail!("no stage is named so"),
            (_, true) => Ok(()),
            (_, false) => bail!("failed: {}", failed.join(", ")),
        }
    }

    fn table(&self) -> String {
        let mut table = format!("{:<36} {:>8} {:>8}\n", "stage", "wall s", "CPU s");
        for row in &self.rows {
            let mark = if row.passed { "" } else { "  FAILED" };
            table += &format!("{:<36} {:>8.1} {:>8.1}{mark}\n", row.name, row.wall, row.cpu);
            for figure in &row.figures {
                table += &format!("    {figure}\n");
            }
        }
        let wall = self.began.elapsed().as_secs_f64();
        let cpu: f64 = self.rows.iter().map(|row| row.cpu).sum();
        table + &format!("{:<36} {wall:>8.1} {cpu:>8.1}", "all")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_stage_fails_the_run_but_not_the_next_stage() {
        let mut stages = Stages::new(&[]);
        assert_eq!(stages.run::<()>("one", || bail!("broken")), None);
        assert_eq!(stages.run("two", || Ok(2)), Some(2));
        stages.figure("2 of 2");
        let table = stages.table();
        assert_eq!(table.lines().nth(3), Some("    2 of 2"));
        assert!(table.lines().nth(1).unwrap().ends_with("FAILED"), "{table}");
        assert_eq!(stages.close().unwrap_err().to_string(), "failed: one");
    }

    #[test]
    fn a_run_without_a_stage_fails() {
        let mut stages = Stages::new(&["nothing so named".into()]);
        assert_eq!(stages.run("one", || Ok(1)), None);
        assert!(stages.close().is_err());
    }

    #[test]
    fn only_takes_parts_of_names_and_whole_groups() {
        let stages = Stages::new(&["real: te".into()]);
        assert!(stages.wants("real: tests") && stages.wants("real") && !stages.wants("clippy"));
    }
}
