//! The cluster on a terminal.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Cell, Paragraph, Row, Table};
use rgpu_control::api::{Device, Event, Lease, LeaseState, Node};

use super::{Snapshot, plain};
use crate::leases;
use crate::table::printable;
use rgpu_control::units;

/// What is shown.
pub(super) struct View {
    /// The broker's address.
    pub broker: String,
    /// The cluster, as it was heard of last.
    pub snapshot: Snapshot,
    /// Why it isn't heard of any more.
    pub lost: Option<String>,
    /// What happened lately, the latest last.
    pub events: Vec<Event>,
    /// How many lines of the long tables are above what is shown.
    pub scroll: usize,
}

/// So many events are shown.
pub(super) const EVENTS: usize = 4;
const BAR: usize = 10;

impl View {
    /// The furthest that scrolling makes sense.
    pub(super) fn longest(&self) -> usize {
        self.snapshot.devices.len().max(self.snapshot.leases.len()).saturating_sub(1)
    }

    /// Draws it.
    pub(super) fn draw(&self, frame: &mut Frame) {
        let events = self.events.len().min(EVENTS) as u16;
        let nodes = (self.snapshot.nodes.len() as u16).clamp(1, 8);
        let devices = (self.snapshot.devices.len() as u16).clamp(1, 12);
        let queue = self.snapshot.queue().len() as u16;
        let areas = Layout::vertical([
            Constraint::Length(2),
            Constraint::Max(nodes + 3),
            Constraint::Max(devices + 3),
            Constraint::Min(5),
            Constraint::Max(if queue == 0 { 0 } else { queue.min(8) + 3 }),
            Constraint::Length(if events == 0 { 0 } else { events + 2 }),
        ]);
        let [head, nodes, devices, leases, queue, events] = areas.areas(frame.area());
        self.draw_head(frame, head);
        self.draw_nodes(frame, nodes);
        self.draw_devices(frame, devices);
        self.draw_leases(frame, leases);
        self.draw_queue(frame, queue);
        self.draw_events(frame, events);
    }

    fn draw_head(&self, frame: &mut Frame, area: Rect) {
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let mut first = vec![Span::styled("rgpu ", bold), Span::raw(self.broker.clone())];
        first.push(match &self.lost {
            None => Span::styled("  connected", Style::new().fg(Color::Green)),
            Some(why) => {
                let text = format!("  CONNECTION LOST, trying again: {}", printable(why));
                Span::styled(text, Style::new().fg(Color::Red).add_modifier(Modifier::BOLD))
            }
        });
        first.push(Span::styled("  (q quits)", Style::new().fg(Color::DarkGray)));
        let second = Line::raw(plain::summary(&self.snapshot.summary));
        frame.render_widget(Paragraph::new(vec![Line::from(first), second]), area);
    }

    fn draw_nodes(&self, frame: &mut Frame, area: Rect) {
        let row = |node: &Node| {
            let capacity = node.nic_mbps.max(1) as f64;
            Row::new([
                Cell::new(printable(&node.name)),
                Cell::new(node.state.clone()).style(state_style(&node.state)),
                Cell::new(printable(&node.address)),
                Cell::new(node.leases.to_string()),
                bar(node.nic_in_mbps as f64 / capacity, units::rate(node.nic_in_mbps as f64)),
                bar(node.nic_out_mbps as f64 / capacity, units::rate(node.nic_out_mbps as f64)),
                Cell::new(if node.state == "client" {
                    "-".into()
                } else {
                    units::seconds(node.heard_s.max(0.0) as u64)
                }),
            ])
        };
        let widths = [
            Constraint::Fill(2),
            Constraint::Length(9),
            Constraint::Fill(2),
            Constraint::Length(6),
            Constraint::Length(24),
            Constraint::Length(24),
            Constraint::Length(6),
        ];
        let titles = ["NODE", "STATE", "ADDRESS", "LEASES", "NETWORK IN", "NETWORK OUT", "HEARD"];
        let rows = self.snapshot.nodes.iter().skip(self.offset(self.snapshot.nodes.len(), area)).map(row);
        self.table(frame, area, "Nodes", &titles, &widths, rows.collect());
    }

    fn draw_devices(&self, frame: &mut Frame, area: Rect) {
        let row = |device: &Device| {
            let memory = device.report.memory.max(1) as f64;
            let part = |bytes: u64| bytes as f64 / memory;
            let used =
                format!("{}/{}", units::bytes(device.load.memory_used), units::bytes(device.report.memory));
            let style = if device.available { Style::new() } else { Style::new().fg(Color::DarkGray) };
            Row::new([
                Cell::new(printable(&format!("{}:{}", device.node, device.report.index))),
                Cell::new(printable(&device.report.model)),
                bar(f64::from(device.granted_milli) / 1000.0, units::percent(device.granted_milli.into())),
                bar(
                    f64::from(device.load.utilization_percent) / 100.0,
                    format!("{}%", device.load.utilization_percent),
                ),
                bar(part(device.granted_memory), units::bytes(device.granted_memory)),
                bar(part(device.load.memory_used), used),
                Cell::new(device.load.power_w.map_or("-".into(), |watts| format!("{watts:.0} W"))),
                Cell::new(device.leases.len().to_string()),
            ])
            .style(style)
        };
        let widths = [
            Constraint::Fill(2),
            Constraint::Fill(3),
            Constraint::Length(17),
            Constraint::Length(15),
            Constraint::Length(20),
            Constraint::Length(28),
            Constraint::Length(6),
            Constraint::Length(6),
        ];
        let titles =
            ["GPU", "MODEL", "SHARE GRANTED", "BUSY", "MEMORY GRANTED", "MEMORY USED", "POWER", "LEASES"];
        let rows = self.snapshot.devices.iter().skip(self.offset(self.snapshot.devices.len(), area)).map(row);
        self.table(frame, area, "GPUs", &titles, &widths, rows.collect());
    }

    fn draw_leases(&self, frame: &mut Frame, area: Rect) {
        let row = |lease: &Lease| {
            let granted: u64 = lease.grants.iter().map(|grant| grant.memory).sum();
            let used: u64 = lease.usage.iter().map(|usage| usage.memory).sum();
            let share: u64 = lease.grants.iter().map(|grant| u64::from(grant.share_milli)).sum();
            let busy: u64 = lease.usage.iter().map(|usage| u64::from(usage.share_milli)).sum();
            Row::new([
                Cell::new(lease.id.to_string()),
                Cell::new(printable(&lease.name)),
                Cell::new(printable(&lease.tenant)),
                Cell::new(lease.state.name()).style(lease_style(lease.state)),
                Cell::new(printable(&leases::places(lease))),
                Cell::new(format!("{}/{}", units::percent(busy), units::percent(share))),
                bar(used as f64 / granted.max(1) as f64, units::bytes(used)),
                Cell::new(units::age(lease.submitted)),
                Cell::new(printable(&lease.reason)),
            ])
        };
        let widths = [
            Constraint::Length(16),
            Constraint::Fill(2),
            Constraint::Fill(1),
            Constraint::Length(8),
            Constraint::Fill(2),
            Constraint::Length(11),
            Constraint::Length(20),
            Constraint::Length(5),
            Constraint::Fill(3),
        ];
        let titles =
            ["LEASE", "NAME", "TENANT", "STATE", "WHERE", "BUSY/SHARE", "MEMORY USED", "AGE", "NOTE"];
        let rows = self.snapshot.leases.iter().skip(self.offset(self.snapshot.leases.len(), area)).map(row);
        self.table(frame, area, "Leases", &titles, &widths, rows.collect());
    }

    fn draw_queue(&self, frame: &mut Frame, area: Rect) {
        let rows = self.snapshot.queue().into_iter().map(|job| {
            Row::new([
                Cell::new(job.place.to_string()),
                Cell::new(job.lease.to_string()),
                Cell::new(printable(&job.name)),
                Cell::new(printable(&job.tenant)),
                Cell::new(units::age(job.submitted)),
                Cell::new(printable(&job.reason)),
            ])
        });
        let widths = [
            Constraint::Length(6),
            Constraint::Length(16),
            Constraint::Fill(1),
            Constraint::Fill(1),
            Constraint::Length(5),
            Constraint::Fill(3),
        ];
        let titles = ["PLACE", "LEASE", "NAME", "TENANT", "AGE", "WHY"];
        self.table(frame, area, "Queue", &titles, &widths, rows.collect());
    }

    fn draw_events(&self, frame: &mut Frame, area: Rect) {
        let latest = self.events.iter().skip(self.events.len().saturating_sub(EVENTS));
        let line = |event: &Event| {
            Line::raw(format!(
                "{:>5} ago  {}  {}",
                units::age(event.time),
                event.kind,
                printable(&event.text)
            ))
        };
        let block = Block::new().borders(Borders::TOP).title("Lately");
        frame.render_widget(Paragraph::new(latest.map(line).collect::<Vec<_>>()).block(block), area);
    }

    /// How many of so many lines are above an area that has a title and a header.
    fn offset(&self, lines: usize, area: Rect) -> usize {
        self.scroll.min(lines.saturating_sub(usize::from(area.height.saturating_sub(2))))
    }

    fn table(
        &self,
        frame: &mut Frame,
        area: Rect,
        title: &str,
        titles: &[&'static str],
        widths: &[Constraint],
        rows: Vec<Row<'_>>,
    ) {
        let header = Row::new(titles.to_vec()).style(Style::new().fg(Color::DarkGray));
        let block = Block::new().borders(Borders::TOP).title(title.to_owned());
        frame.render_widget(Table::new(rows, widths.to_vec()).header(header).block(block), area);
    }
}

/// A part of a whole, and what it is in numbers.
fn bar(part: f64, text: String) -> Cell<'static> {
    let part = if part.is_finite() { part.clamp(0.0, 1.0) } else { 0.0 };
    let full = (part * BAR as f64).round() as usize;
    let color = match part {
        0.0..0.7 => Color::Green,
        0.7..0.95 => Color::Yellow,
        _ => Color::Red,
    };
    Cell::new(Line::from(vec![
        Span::styled("█".repeat(full), Style::new().fg(color)),
        Span::styled("░".repeat(BAR - full), Style::new().fg(Color::DarkGray)),
        Span::raw(format!(" {text}")),
    ]))
}

fn state_style(state: &str) -> Style {
    Style::new().fg(match state {
        "ready" => Color::Green,
        "draining" => Color::Yellow,
        "lost" => Color::Red,
        _ => Color::DarkGray,
    })
}

fn lease_style(state: LeaseState) -> Style {
    Style::new().fg(match state {
        LeaseState::Active => Color::Green,
        LeaseState::Waiting => Color::Yellow,
        LeaseState::Ending | LeaseState::Ended => Color::DarkGray,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::example;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn drawn(view: &View, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| view.draw(frame)).unwrap();
        let buffer = terminal.backend().buffer();
        let row = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..height).map(row).collect::<Vec<_>>().join("\n")
    }

    fn view() -> View {
        let event = Event {
            number: 1,
            time: rgpu_control::unix_time(),
            kind: "node_lost".into(),
            node: Some("s1".into()),
            lease: None,
            tenant: None,
            text: "s1 is lost".into(),
        };
        let broker = "http://broker:7080".into();
        View { broker, snapshot: example(), lost: None, events: vec![event], scroll: 0 }
    }

    #[test]
    fn everything_is_on_the_screen() {
        let text = drawn(&view(), 160, 40);
        for part in [
            "http://broker:7080  connected",
            "1/2 nodes ready",
            "1234 launches/s",
            "s1:0",
            // A quarter of ten, of which none is half.
            "███░░░░░░░ 25%",
            "██░░░░░░░░ 20%",
            "█████░░░░░ 1.0 GiB",
            "24.1%/25%",
            "train",
            "all devices are taken",
            "s1 is lost",
        ] {
            assert!(text.contains(part), "{part}:\n{text}");
        }
    }

    #[test]
    fn a_lost_connection_is_said_and_the_rest_stays() {
        let text = drawn(&View { lost: Some("refused".into()), ..view() }, 160, 40);
        assert!(
            text.contains("CONNECTION LOST") && text.contains("refused") && text.contains("train"),
            "{text}"
        );
    }

    #[test]
    fn small_terminals_and_odd_numbers_are_no_trouble() {
        let mut odd = view();
        odd.snapshot.nodes[0].nic_mbps = 0;
        odd.snapshot.devices[0].report.memory = 0;
        odd.snapshot.devices[0].granted_milli = 5000;
        odd.snapshot.nodes[0].heard_s = f64::NAN;
        odd.scroll = 1000;
        for (width, height) in [(1, 1), (20, 5), (80, 24), (300, 100)] {
            drawn(&odd, width, height);
        }
    }

    #[test]
    fn scrolling_moves_long_tables_alone() {
        let mut long = view();
        let lease = long.snapshot.leases[0].clone();
        long.snapshot.leases =
            (0..60).map(|number| Lease { name: format!("job-{number:02}"), ..lease.clone() }).collect();
        let top = drawn(&long, 160, 30);
        assert!(top.contains("job-00") && !top.contains("job-59"), "{top}");
        long.scroll = long.longest();
        let bottom = drawn(&long, 160, 30);
        assert!(
            bottom.contains("job-59") && !bottom.contains("job-00") && bottom.contains("s0:0"),
            "{bottom}"
        );
    }
}
