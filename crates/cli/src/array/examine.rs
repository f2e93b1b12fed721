//! `stripewise examine`: what a member's superblock, bitmap and bad-block log say, in mdadm's words.

mod json;

use std::fmt::Write;
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use stripewise_format::bitmap::{BitmapSuperblock, Bits};
use stripewise_format::examine::{self, Context};
use stripewise_format::superblock::Superblock;
use stripewise_format::uuid::Uuid;
use stripewise_host::md::overlay::Overlay;
use stripewise_host::md::probe::{
    Found, Probe, Source, open, probe_source, read_bad_blocks, read_bitmap, read_bitmap_file,
};
use stripewise_host::md::signature;

use super::{host_error, hostname};
use crate::exit::{Exit, Impossible, is_impossible};
use crate::output::{print, print_json};

const SUPERBLOCK_LABEL_WIDTH: usize = 15;
const BITMAP_LABEL_WIDTH: usize = 16;

/// The options of `examine`, mdadm's.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "one for each switch of the command line")]
pub(crate) struct ExamineArgs {
    /// Files and block devices
    #[arg(required = true, value_name = "DEVICE")]
    devices: Vec<PathBuf>,
    /// Print the write-intent bitmap instead of the superblock
    #[arg(long, short = 'X', group = "what")]
    examine_bitmap: bool,
    /// Print the bad-block log instead of the superblock
    #[arg(long, group = "what")]
    examine_badblocks: bool,
    /// Print NAME=value lines for scripts
    #[arg(long, short = 'Y', group = "what")]
    export: bool,
    /// Print a line for mdadm.conf for each array
    #[arg(long, short, group = "what")]
    brief: bool,
    /// Read devices as changed by this copy-on-write file
    #[arg(long, value_name = "FILE")]
    overlay: Option<PathBuf>,
    /// Print JSON: superblock, bitmap and bad blocks of each device
    #[arg(long, group = "what")]
    json: bool,
}

/// What `--brief` says of an array.
struct Brief {
    uuid: Uuid,
    line: String,
    /// Devices without a slot.
    spares: usize,
}

impl Brief {
    /// Counts a device to its array.
    fn add(briefs: &mut Vec<Self>, superblock: &Superblock) {
        let (uuid, is_spare) = (superblock.set_uuid(), examine::counts_as_spare(superblock));
        match briefs.iter_mut().find(|brief| brief.uuid == uuid) {
            Some(brief) => brief.spares += usize::from(is_spare),
            None => {
                briefs.push(Self { uuid, line: examine::brief(superblock), spares: usize::from(is_spare) });
            }
        }
    }
}

impl std::fmt::Display for Brief {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{}", self.line)?;
        if self.spares > 0 { writeln!(f, "   spares={}", self.spares) } else { Ok(()) }
    }
}

/// A device that is open, and what was found on it.
struct Device {
    source: Box<dyn Source>,
    probe: Probe,
}

pub(crate) fn run(args: &ExamineArgs) -> Result<Exit> {
    let overlay = args.overlay.as_deref().map(Overlay::open_readonly).transpose()?;
    let mut text = String::new();
    let mut briefs: Vec<Brief> = Vec::new();
    let mut documents = Vec::new();
    let mut problems = Vec::new();
    let mut is_machines = false;
    for path in &args.devices {
        let device = match Device::open(path, overlay.as_ref()) {
            Ok(device) => device,
            // One that cannot be read hides none of the others.
            Err(error) if args.devices.len() > 1 => {
                documents.push(json::unreadable(path, &error));
                problems.push(error.to_string());
                is_machines |= !is_impossible(&error);
                continue;
            }
            Err(error) => return Err(error),
        };
        if args.json {
            documents.push(json::device(&device));
        }
        let described = if args.brief {
            device.superblock().map(|(_, superblock)| Brief::add(&mut briefs, superblock))
        } else {
            device.describe(args).map(|description| text.push_str(&description))
        };
        match described {
            Ok(()) => {}
            Err(problem) => problems.push(format!("{}: {problem}", path.display())),
        }
    }
    // As mdadm prints them: the array of the last device first.
    briefs.iter().rev().for_each(|brief| text.push_str(&brief.to_string()));
    if args.json {
        print_json(&json::document(documents))?;
    } else {
        print(&text)?;
    }
    let problems = problems.join("\nstripewise: ");
    if problems.is_empty() {
        Ok(Exit::Done)
    } else if is_machines {
        Err(anyhow::Error::msg(problems))
    } else {
        Err(Impossible(problems).into())
    }
}

impl Device {
    fn open(path: &Path, overlay: Option<&Overlay>) -> Result<Self> {
        let (file, sectors) = open(path).map_err(host_error)?;
        let source: Box<dyn Source> = match overlay {
            Some(overlay) => Box::new(overlay.look(path).map_err(host_error)?),
            None => Box::new(file),
        };
        let probe = probe_source(path, sectors, &*source).map_err(host_error)?;
        Ok(Self { source, probe })
    }

    /// The superblock the device goes by, or why there is none.
    fn superblock(&self) -> Result<(&Found, &Superblock), String> {
        let Some(found) = self.probe.found.first() else {
            let held = signature::find(&*self.source, self.probe.device_sectors).unwrap_or_default();
            return Err(match held.as_slice() {
                [] => "holds no md superblock".to_owned(),
                held => format!("holds no md superblock; it holds {}", held.join(", ")),
            });
        };
        match &found.superblock {
            Ok(superblock) => Ok((found, superblock)),
            Err(error) => {
                Err(format!("holds a superblock of version {} that is not valid: {error}", found.metadata))
            }
        }
    }

    fn describe(&self, args: &ExamineArgs) -> Result<String, String> {
        if args.examine_bitmap
            && self.probe.found.is_empty()
            && let Some((head, bits)) = read_bitmap_file(&*self.source, self.probe.device_sectors)
                .map_err(|error| error.to_string())?
        {
            return Ok(self.bitmap_text(&head, &head.uuid, &bits));
        }
        let (found, superblock) = self.superblock()?;
        if args.examine_bitmap {
            self.bitmap(found, superblock)
        } else if args.examine_badblocks {
            self.bad_blocks(superblock)
        } else if args.export {
            let mut text = String::new();
            for (name, value) in examine::export(superblock) {
                let _ = writeln!(text, "{name}={value}");
            }
            Ok(text)
        } else {
            Ok(self.whole(found, superblock))
        }
    }

    fn whole(&self, found: &Found, superblock: &Superblock) -> String {
        let sectors = self.probe.device_sectors;
        let bitmap = read_bitmap(&*self.source, sectors, superblock, found.at_sector).ok().flatten();
        let homehost = hostname();
        let context = Context {
            device_sectors: sectors,
            homehost: homehost.as_deref(),
            utc_offset_seconds: 0,
            bitmap: bitmap.as_ref().map(|(head, _)| head),
            device_path: None,
        };
        let lines = match superblock {
            Superblock::V0(superblock) => examine::superblock_0(superblock, &context),
            Superblock::V1(superblock) => examine::superblock_1(superblock, &context),
        };
        let text = examine::render(&lines, SUPERBLOCK_LABEL_WIDTH);
        format!("{}:\n{text}", self.probe.path.display())
    }

    fn bitmap(&self, found: &Found, superblock: &Superblock) -> Result<String, String> {
        let read = read_bitmap(&*self.source, self.probe.device_sectors, superblock, found.at_sector);
        let (head, bits) =
            read.map_err(|error| error.to_string())?.ok_or("its array has no internal bitmap")?;
        Ok(self.bitmap_text(&head, &superblock.set_uuid(), &bits))
    }

    fn bitmap_text(&self, head: &BitmapSuperblock, array_uuid: &Uuid, bits: &Bits) -> String {
        let mut lines = vec![examine::Line::Field("Filename", self.probe.path.display().to_string())];
        lines.extend(examine::bitmap(head, array_uuid, Some(bits)));
        examine::render(&lines, BITMAP_LABEL_WIDTH)
    }

    fn bad_blocks(&self, superblock: &Superblock) -> Result<String, String> {
        let path = self.probe.path.display();
        let read = read_bad_blocks(&*self.source, self.probe.device_sectors, superblock);
        let Some(ranges) = read.map_err(|error| error.to_string())? else {
            return Ok(format!("No bad-blocks list configured on {path}\n"));
        };
        if ranges.is_empty() {
            return Ok(format!("Bad-blocks list is empty in {path}\n"));
        }
        let mut text = format!("Bad-blocks on {path}:\n");
        for range in ranges {
            let _ = writeln!(text, "{:20} for {} sectors", range.start_sector, range.length_sectors);
        }
        Ok(text)
    }
}
