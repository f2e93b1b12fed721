//! Arrays with a write journal: what is said of it.

use anyhow::Result;
use stripewise_engine::journal::JournalReport;
use stripewise_host::md::assemble::Assembled;
use stripewise_host::md::journal::Pending;

use super::select::impossible;

/// What a write journal has is read from the members only when it has been brought there, which writes.
pub(super) fn beware(assembled: &Assembled, is_readonly: bool) -> Result<()> {
    let maybe = "so the last writes may be missing, and with them data of missing members";
    let (what, advice) = match assembled.journal_pending()? {
        Pending::Rows(0) => return Ok(()),
        Pending::Rows(rows) => {
            let plural = if rows == 1 { "" } else { "s" };
            (
                format!("the write journal has data of {rows} row{plural} of 4K that the members lack"),
                "`stripewise assemble` brings them to the members",
            )
        }
        Pending::Lost => (
            format!("the write journal is missing, {maybe}"),
            "`stripewise assemble --force` gives the journal up",
        ),
        Pending::Damaged => (
            format!("the write journal's first meta block is damaged, {maybe}"),
            "`stripewise assemble --force` gives the journal up",
        ),
    };
    if !is_readonly {
        return Err(impossible(format!("{what}; {advice}, --readonly takes the members as they are")));
    }
    say!("stripewise: {what}; the members are taken as they are");
    Ok(())
}

/// Says what a write journal was good for, where there was something to follow.
pub(super) fn tell(assembled: &Assembled) {
    if let Some(JournalReport { rows, data_only_rows, without_parity, .. }) = assembled.replayed {
        if rows + data_only_rows > 0 {
            say!(
                "stripewise: the write journal is empty; {} rows of 4K were brought to the members, {data_only_rows} of them with \
                 parity computed",
                rows + data_only_rows
            );
        }
        if without_parity > 0 {
            say!(
                "stripewise: parity of {without_parity} rows cannot be computed: the members list too much of them as bad"
            );
        }
    }
    if assembled.has_given_up_journal {
        let rest = match (assembled.replayed.is_some(), assembled.assembly.is_degraded()) {
            (true, _) => "",
            (false, false) => ", and what it held is lost",
            (false, true) => {
                ", and what it held is lost, and with it maybe data of missing members: parity may not fit what was being written"
            }
        };
        say!("stripewise: the array goes on without its write journal{rest}");
    }
}
