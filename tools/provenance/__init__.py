"""Statements of in-toto on what we release: from what each thing was made (SLSA) and what is in it (CycloneDX).

layout       an OCI layout, folder or archive: blobs by digest, and the index
images       one of our images in a layout: manifest, configuration, files of its layers
clone        what a commit holds
statements   the statements' content, made from values only
attachments  statements as referrers of an image
write        both statements of one image
verify       what does not match, as sentences

sums            SHA256SUMS of a folder
charts          a chart's archive as an OCI artefact
contents        what a release holds, as CycloneDX
releases        a release's folder, and the statements on wheels, sources and chart
verify_release  what in a release does not match
"""
